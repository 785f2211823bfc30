-- Deletes messages that nobody refers to: the total is zero (or the sum never left the log) and neither log holds a
-- row for them. Returns how many.
-- Indexes: primary keys of message_zero_sum, spool, message_ref_count_log_totals.
CREATE OR REPLACE FUNCTION messagebox.message_cleanup(p_limit integer DEFAULT 10000) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    deleted integer;
BEGIN
    WITH free AS (
        SELECT z.message_id FROM message_zero_sum z
         WHERE NOT EXISTS (SELECT 1 FROM message_ref_count_log_totals t
                            WHERE t.message_id = z.message_id AND t.total <> 0)
           AND NOT EXISTS (SELECT 1 FROM message_ref_count_log_1 l WHERE l.message_id = z.message_id)
           AND NOT EXISTS (SELECT 1 FROM message_ref_count_log_2 l WHERE l.message_id = z.message_id)
         LIMIT p_limit
    ), zero AS (DELETE FROM message_zero_sum WHERE message_id IN (SELECT message_id FROM free)),
       totals AS (DELETE FROM message_ref_count_log_totals WHERE message_id IN (SELECT message_id FROM free))
    DELETE FROM spool WHERE message_id IN (SELECT message_id FROM free);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    -- A sum that was zero once and is not any more is in the totals; it comes back when it is zero again.
    DELETE FROM message_zero_sum z USING message_ref_count_log_totals t
     WHERE t.message_id = z.message_id AND t.total <> 0;
    RETURN deleted;
END $$;
