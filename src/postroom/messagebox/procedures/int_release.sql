-- Append -1 for each message and each of its parts to the active ref-count logs. Called only with message ids that the
-- calling statement has just deleted from a queue (DELETE ... RETURNING), so that nothing is released twice.
-- Index: spool's primary key.
CREATE OR REPLACE FUNCTION messagebox.int_release(p_message_ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    message_log smallint := (SELECT active FROM active_ref_count_log WHERE kind = 'message');
    part_log smallint := (SELECT active FROM active_ref_count_log WHERE kind = 'part');
BEGIN
    IF message_log = 1 THEN
        INSERT INTO message_ref_count_log_1 SELECT m, -1 FROM unnest(p_message_ids) m;
    ELSE
        INSERT INTO message_ref_count_log_2 SELECT m, -1 FROM unnest(p_message_ids) m;
    END IF;
    IF part_log = 1 THEN
        INSERT INTO part_ref_count_log_1
        SELECT unnest(s.part_ids), -1 FROM unnest(p_message_ids) m JOIN spool s ON s.message_id = m;
    ELSE
        INSERT INTO part_ref_count_log_2
        SELECT unnest(s.part_ids), -1 FROM unnest(p_message_ids) m JOIN spool s ON s.message_id = m;
    END IF;
END $$;
