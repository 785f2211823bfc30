-- Service instances that are in the queues more than once, although their messages do not share an instance. Messages
-- share one by its own subscription or by a convoy (join_instance), or at an ordered send port (deliver_in_order). A
-- message that has activated an orchestration has join_instance, too, but by an activation subscription: two of them
-- are two publishes with one instance id.
SELECT 'instance ' || i.instance_id || ', ' || count(*) || ' times'
  FROM instances i
  LEFT JOIN subscriptions s ON s.id = i.subscription_id
 WHERE i.task NOT IN ('join_instance', 'deliver_in_order')
    OR (s.service_class = 'orchestrations' AND s.instance_id IS NULL AND s.convoy_set_id IS NULL)
 GROUP BY i.instance_id
HAVING count(*) > 1
