-- Service instances that stand in the queues more than once, although no message was to join them (task 4).
SELECT 'instance ' || instance_id || ', ' || count(*) || ' times'
  FROM instances
 WHERE task <> 4
 GROUP BY instance_id
HAVING count(*) > 1
