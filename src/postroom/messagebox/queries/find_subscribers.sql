-- find_subscriptions with what a publisher wants to know of each subscriber.
SELECT f.message_id, s.id, s.service_name, h.name, s.state = 1
  FROM find_subscriptions(%s) f
  JOIN subscriptions s ON s.id = f.subscription_id
  JOIN hosts h ON h.id = s.host_id
 ORDER BY s.id
