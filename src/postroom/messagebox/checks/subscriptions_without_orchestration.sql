-- Instance subscriptions and convoys of orchestrations without an instance. An instance whose first message is still in
-- a queue has a convoy already.
SELECT 'subscription ' || s.id || ' of instance ' || s.instance_id || ', which does not exist'
  FROM subscriptions s
  JOIN services o ON o.id = s.service_id AND o.kind = 'orchestration'
 WHERE s.instance_id IS NOT NULL AND s.removed_at IS NULL
   AND NOT EXISTS (SELECT 1 FROM orchestration_instances i WHERE i.instance_id = s.instance_id)
UNION ALL
SELECT 'convoy of instance ' || c.instance_id || ', which does not exist'
  FROM convoy_set_instances c
 WHERE NOT EXISTS (SELECT 1 FROM instances i WHERE i.instance_id = c.instance_id)
