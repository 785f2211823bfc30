-- Service instances that stand in the queues more than once.
SELECT 'instance ' || instance_id || ', ' || count(*) || ' times'
  FROM instances
 GROUP BY instance_id
HAVING count(*) > 1
