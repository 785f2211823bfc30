-- The ids of one kind between two ids, and whether each is that of a routing failure report or of its message. A
-- message is also found by the ids of its instances.
-- Indexes: spool's primary key, suspended_queue (instance_id), scheduled_queue (instance_id). Interchanges and work
-- queues are scanned.
SELECT f.id, EXISTS (SELECT FROM suspended_queue q
                      WHERE q.cause = 'routing failure report' AND q.instance_id BETWEEN %(first)s AND %(last)s
                        AND f.id IN (q.instance_id, q.message_id))
  FROM (SELECT message_id FROM spool
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
         LIMIT %(limit)s) f (id)
 ORDER BY 1
