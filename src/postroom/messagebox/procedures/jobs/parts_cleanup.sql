-- Delete parts without references, and their fragments, like message_cleanup does for messages and with the same plans.
-- A part outlives every message that has it, because the references of each message count for its parts too.
-- Indexes: primary keys of part_zero_sum, parts, fragments, part_ref_count_log_totals.
CREATE OR REPLACE FUNCTION messagebox.parts_cleanup(p_limit integer DEFAULT 10000) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_nestloop = off SET enable_seqscan = off AS $$
DECLARE
    candidates uuid[];
    free uuid[];
    deleted integer;
BEGIN
    candidates := ARRAY(
        SELECT z.part_id FROM part_zero_sum z
         WHERE NOT EXISTS (SELECT 1 FROM part_ref_count_log_1 l WHERE l.part_id = z.part_id)
           AND NOT EXISTS (SELECT 1 FROM part_ref_count_log_2 l WHERE l.part_id = z.part_id)
         LIMIT p_limit);
    DELETE FROM part_ref_count_log_totals WHERE part_id = ANY (candidates) AND total <= 0;
    -- A sum that was zero once and is not any more is still in the totals; it comes back when it is zero again.
    free := ARRAY(
        SELECT unnest(candidates)
        EXCEPT
        SELECT part_id FROM part_ref_count_log_totals WHERE part_id = ANY (candidates));
    DELETE FROM part_zero_sum WHERE part_id = ANY (candidates);
    DELETE FROM fragments WHERE part_id = ANY (free);
    -- As in message_cleanup. A part in fragments does not count its reference itself.
    DELETE FROM parts WHERE part_id = ANY (free) AND NOT only_reference;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END $$;
