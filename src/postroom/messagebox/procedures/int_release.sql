-- Append -1 for each message and each of its parts to the active ref-count logs, to the counts of the transactions that
-- counted the references. Called only with rows that the calling statement has just deleted from a queue (DELETE ...
-- RETURNING), so that nothing is released twice.
-- Index: spool's primary key.
DROP FUNCTION IF EXISTS messagebox.int_release(uuid[]);
CREATE OR REPLACE FUNCTION messagebox.int_release(p_message_ids uuid[], p_counted_in xid8[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    message_log smallint := (SELECT active FROM active_ref_count_log WHERE kind = 'message');
    part_log smallint := (SELECT active FROM active_ref_count_log WHERE kind = 'part');
BEGIN
    IF message_log = 1 THEN
        INSERT INTO message_ref_count_log_1 (message_id, delta, counted_in)
        SELECT r.message_id, -1, r.counted_in FROM unnest(p_message_ids, p_counted_in) AS r (message_id, counted_in);
    ELSE
        INSERT INTO message_ref_count_log_2 (message_id, delta, counted_in)
        SELECT r.message_id, -1, r.counted_in FROM unnest(p_message_ids, p_counted_in) AS r (message_id, counted_in);
    END IF;
    IF part_log = 1 THEN
        INSERT INTO part_ref_count_log_1 (part_id, delta, counted_in)
        SELECT unnest(s.part_ids), -1, r.counted_in
          FROM unnest(p_message_ids, p_counted_in) AS r (message_id, counted_in) JOIN spool s USING (message_id);
    ELSE
        INSERT INTO part_ref_count_log_2 (part_id, delta, counted_in)
        SELECT unnest(s.part_ids), -1, r.counted_in
          FROM unnest(p_message_ids, p_counted_in) AS r (message_id, counted_in) JOIN spool s USING (message_id);
    END IF;
END $$;
