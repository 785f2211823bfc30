-- Service instances that are in the queues more than once, although their messages do not share an instance (tasks 4
-- and 6).
SELECT 'instance ' || instance_id || ', ' || count(*) || ' times'
  FROM instances
 WHERE task NOT IN (4, 6)
 GROUP BY instance_id
HAVING count(*) > 1
