-- Service instances that are in the queues more than once, although no message joins them (task 4).
SELECT 'instance ' || instance_id || ', ' || count(*) || ' times'
  FROM instances
 WHERE task <> 4
 GROUP BY instance_id
HAVING count(*) > 1
