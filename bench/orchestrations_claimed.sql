-- Claims the instances and reads their messages, as the end of claim_orchestrations_<host> and the read after it do.
-- Used by the bare loop.
WITH claimed AS (
    UPDATE orchestration_instances SET claim_id = %(claim)s, claimed_by = 1, ready_seq = NULL
     WHERE instance_id = ANY (%(instances)s)
 RETURNING instance_id
)
SELECT c.instance_id, m.message_id, s.context::text, p.body
  FROM claimed c
  JOIN orchestration_messages m ON m.instance_id = c.instance_id
  LEFT JOIN spool s ON s.message_id = m.message_id
  LEFT JOIN parts p ON p.part_id = s.body_part_id
