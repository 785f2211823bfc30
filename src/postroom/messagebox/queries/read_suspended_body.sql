-- Name, content type and charset of the body part of a suspended instance that can be resumed; nulls if its message has
-- no body. Locks the instance's row until the transaction ends.
-- Indexes: suspended_queue (instance_id), spool's and parts' primary keys.
SELECT s.body_part_name, p.content_type, p.charset
  FROM suspended_queue q
  JOIN spool s ON s.message_id = q.message_id
  LEFT JOIN parts p ON p.part_id = s.body_part_id
 WHERE q.instance_id = %s AND q.resumable
   FOR UPDATE OF q
