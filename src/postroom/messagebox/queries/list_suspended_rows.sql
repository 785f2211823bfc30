-- The suspended rows of an interchange that can be resumed: instance, context, and the body part. The body is null
-- if it is in fragments.
-- Indexes: none on the suspended queue, which is read whole; spool's and parts' primary keys.
SELECT q.instance_id, s.context, p.part_id, p.body
  FROM suspended_queue q
  JOIN spool s ON s.message_id = q.message_id
  JOIN parts p ON p.part_id = s.body_part_id
 WHERE q.resumable AND q.adapter = 'spark_reader' AND is_of_interchange(q.message_id, %s)
