-- Claims a batch and reads its messages, as dequeue_messages_<host> does. Used by the bare loop.
WITH claimed AS (
    UPDATE default_q q SET claim_id = %s, claimed_by = 1
     WHERE q.ctid = ANY (ARRAY(
           SELECT w.ctid FROM default_q w
            WHERE w.claim_id IS NULL AND w.task <> 'deliver_in_order' AND w.service_class = 'messaging_in_process'
            ORDER BY w.priority, w.seq LIMIT %s FOR UPDATE SKIP LOCKED))
 RETURNING q.seq, q.message_id, q.service_id, q.instance_id, q.task, q.attempt, q.priority
)
SELECT c.seq, c.message_id, c.service_id, c.instance_id, c.task, c.attempt, s.context::text,
       cardinality(s.part_ids), s.body_part_id, s.body_part_name, p.content_type, p.charset, p.body
  FROM claimed c
  LEFT JOIN spool s ON s.message_id = c.message_id
  LEFT JOIN parts p ON p.part_id = s.body_part_id
 ORDER BY c.priority, c.seq
