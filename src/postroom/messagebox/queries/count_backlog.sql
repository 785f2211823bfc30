-- The number of messages of each of some services, by state (as in the view instances).
-- Reads all rows of the queues.
SELECT service_id, state, count(*)
  FROM instances
 WHERE service_id = ANY (%s)
 GROUP BY service_id, state
