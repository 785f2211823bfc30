-- The ids of one kind between two ids. A message is also found by the ids of its instances.
-- Indexes: spool's primary key, suspended_queue (instance_id), scheduled_queue (instance_id). Interchanges and work
-- queues are scanned.
SELECT message_id FROM spool
 WHERE %(kind)s = 'message' AND message_id BETWEEN %(first)s AND %(last)s
 UNION
SELECT CASE %(kind)s WHEN 'message' THEN message_id ELSE instance_id END FROM instances
 WHERE %(kind)s IN ('message', 'instance') AND instance_id BETWEEN %(first)s AND %(last)s
 UNION
SELECT instance_id FROM subscriptions
 WHERE %(kind)s = 'subscriber' AND instance_id BETWEEN %(first)s AND %(last)s
 UNION
SELECT * FROM find_interchanges(%(first)s, %(last)s)
 WHERE %(kind)s = 'interchange'
 ORDER BY 1
 LIMIT %(limit)s
