-- Delete messages without references: their total is zero (or the sum never left the log) and neither log has a row for
-- them. Returns the number of deleted messages.
-- Indexes: primary keys of message_zero_sum, spool, message_ref_count_log_totals; the logs are read whole, and hashed.
-- Nested loops and sequential scans are off: these tables are emptied all the time, and a statistic from such a moment
-- would have the logs read once for every message.
CREATE OR REPLACE FUNCTION messagebox.message_cleanup(p_limit integer DEFAULT 10000) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_nestloop = off SET enable_seqscan = off AS $$
DECLARE
    candidates uuid[];
    free uuid[];
    deleted integer;
BEGIN
    candidates := ARRAY(
        SELECT z.message_id FROM message_zero_sum z
         WHERE NOT EXISTS (SELECT 1 FROM message_ref_count_log_1 l WHERE l.message_id = z.message_id)
           AND NOT EXISTS (SELECT 1 FROM message_ref_count_log_2 l WHERE l.message_id = z.message_id)
         LIMIT p_limit);
    -- No log has a row of a candidate. So a count below zero is final: a host has counted down what it did not count
    -- up.
    DELETE FROM message_ref_count_log_totals WHERE message_id = ANY (candidates) AND total <= 0;
    -- A sum that was zero once and is not any more is still in the totals; it comes back when it is zero again.
    free := ARRAY(
        SELECT unnest(candidates)
        EXCEPT
        SELECT message_id FROM message_ref_count_log_totals WHERE message_id = ANY (candidates));
    DELETE FROM message_zero_sum WHERE message_id = ANY (candidates);
    -- A host can log any id, also that of a message whose row counts its only reference.
    DELETE FROM spool WHERE message_id = ANY (free) AND NOT only_reference;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END $$;
