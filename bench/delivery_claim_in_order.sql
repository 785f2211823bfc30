-- Claims the first message of an ordered send port and reads it. Used by the bare loop with one commit per message.
WITH claimed AS (
    UPDATE default_q q SET claim_id = %s, claimed_by = 1
     WHERE q.ctid = (SELECT w.ctid FROM default_q w
                      WHERE w.task = 'deliver_in_order' AND w.instance_id = %s ORDER BY w.seq LIMIT 1 FOR UPDATE)
 RETURNING q.seq, q.message_id, q.service_id, q.instance_id, q.task, q.attempt
)
SELECT c.seq, c.message_id, c.service_id, c.instance_id, c.task, c.attempt, s.context::text,
       cardinality(s.part_ids), s.body_part_id, s.body_part_name, p.content_type, p.charset, p.body
  FROM claimed c
  LEFT JOIN spool s ON s.message_id = c.message_id
  LEFT JOIN parts p ON p.part_id = s.body_part_id
