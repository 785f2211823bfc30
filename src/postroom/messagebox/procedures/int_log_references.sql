-- Append p_delta for each of the messages and parts to the active ref-count logs: to the counts of the given
-- transactions, or to the count of this one.
CREATE OR REPLACE FUNCTION messagebox.int_log_references(
    p_delta integer, p_message_ids uuid[], p_part_ids uuid[], p_message_counts xid8[] DEFAULT NULL,
    p_part_counts xid8[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    message_log smallint := (SELECT active FROM active_ref_count_log WHERE kind = 'message');
    part_log smallint := (SELECT active FROM active_ref_count_log WHERE kind = 'part');
BEGIN
    IF message_log = 1 THEN
        INSERT INTO message_ref_count_log_1 (message_id, delta, counted_in)
        SELECT r.id, p_delta, coalesce(r.counted_in, pg_current_xact_id())
          FROM unnest(p_message_ids, p_message_counts) AS r (id, counted_in);
    ELSE
        INSERT INTO message_ref_count_log_2 (message_id, delta, counted_in)
        SELECT r.id, p_delta, coalesce(r.counted_in, pg_current_xact_id())
          FROM unnest(p_message_ids, p_message_counts) AS r (id, counted_in);
    END IF;
    IF part_log = 1 THEN
        INSERT INTO part_ref_count_log_1 (part_id, delta, counted_in)
        SELECT r.id, p_delta, coalesce(r.counted_in, pg_current_xact_id())
          FROM unnest(p_part_ids, p_part_counts) AS r (id, counted_in);
    ELSE
        INSERT INTO part_ref_count_log_2 (part_id, delta, counted_in)
        SELECT r.id, p_delta, coalesce(r.counted_in, pg_current_xact_id())
          FROM unnest(p_part_ids, p_part_counts) AS r (id, counted_in);
    END IF;
END $$;
