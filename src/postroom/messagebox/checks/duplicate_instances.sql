-- Service instances that are in the queues more than once, although their messages do not share an instance. Messages
-- share one by its own subscription or by a convoy (task 4), or at an ordered send port (task 6). A message that has
-- activated an orchestration has task 4, too, but by an activation subscription: two of them are two publishes with one
-- instance id.
SELECT 'instance ' || i.instance_id || ', ' || count(*) || ' times'
  FROM instances i
  LEFT JOIN subscriptions s ON s.id = i.subscription_id
 WHERE i.task NOT IN (4, 6)
    OR (s.service_class = 1 AND s.instance_id IS NULL AND s.convoy_set_id IS NULL)
 GROUP BY i.instance_id
HAVING count(*) > 1
