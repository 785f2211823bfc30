-- Replace the message of a suspended instance with a corrected copy, which the caller has inserted. The stored message
-- does not change, because others may refer to it. The copy names the original in Postroom.OriginalMessageID. Returns
-- false if there is no such resumable instance.
-- Index: suspended_queue (instance_id), spool's primary key. Locks: the instance's row.
CREATE OR REPLACE FUNCTION messagebox.replace_body(
    p_instance_id uuid, p_message_id uuid, p_part_id uuid, p_part_name text
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    old_message uuid;
    old_count xid8;
    new_parts uuid[];
BEGIN
    SELECT message_id, counted_in INTO old_message, old_count FROM suspended_queue
     WHERE instance_id = p_instance_id AND resumable FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context, originator_sid, originator_pid)
    SELECT p_message_id,
           CASE WHEN s.body_part_id IS NULL THEN s.part_ids || p_part_id
                ELSE array_replace(s.part_ids, s.body_part_id, p_part_id) END,
           p_part_id, p_part_name,
           jsonb_set(s.context, '{written,Postroom#OriginalMessageID}', to_jsonb(old_message)),
           coalesce(s.originator_sid, s.published_by), s.originator_pid
      FROM spool s WHERE s.message_id = old_message
    RETURNING part_ids INTO STRICT new_parts;
    UPDATE suspended_queue SET message_id = p_message_id, counted_in = pg_current_xact_id()
     WHERE instance_id = p_instance_id;
    -- Parts that both messages have get the new reference before the old one goes.
    PERFORM int_count_in_logs(ARRAY[old_message]);
    PERFORM int_log_references(1, ARRAY[p_message_id], new_parts);
    PERFORM int_release(ARRAY[old_message], ARRAY[old_count]);
    RETURN true;
END $$;
