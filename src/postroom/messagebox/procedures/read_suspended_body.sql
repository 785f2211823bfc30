-- Return name, content type and charset of the body part of a suspended instance that can be resumed, one row per
-- suspended message. They are null if the message has no body. Locks the instance's rows until the transaction ends.
-- Indexes: suspended_queue (instance_id), spool's and parts' primary keys.
CREATE OR REPLACE FUNCTION messagebox.read_suspended_body(p_instance_id uuid)
RETURNS TABLE (body_part_name text, content_type text, charset text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT s.body_part_name, p.content_type, p.charset
      FROM suspended_queue q
      JOIN spool s ON s.message_id = q.message_id
      LEFT JOIN parts p ON p.part_id = s.body_part_id
     WHERE q.instance_id = p_instance_id AND q.resumable
       FOR UPDATE OF q;
$$;
