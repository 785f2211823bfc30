-- The number of messages of each of some services, by state (as in the view instances). An instance of an orchestration
-- counts once, with the state of its first message.
-- Reads all rows of the queues.
WITH found AS (SELECT service_id, state, task, instance_id, seq FROM instances WHERE service_id = ANY (%s))
SELECT service_id, state, count(*)
  FROM (SELECT service_id, state FROM found WHERE task <> 'join_instance'
        UNION ALL
        (SELECT DISTINCT ON (instance_id) service_id, state FROM found WHERE task = 'join_instance'
          ORDER BY instance_id, seq)) f
 GROUP BY service_id, state
