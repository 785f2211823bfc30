-- Deletes parts, and their fragments, that nobody refers to: as message_cleanup does for messages. A part outlives
-- every message that has it, because each message's references count for its parts too.
-- Indexes: primary keys of part_zero_sum, parts, fragments, part_ref_count_log_totals.
CREATE OR REPLACE FUNCTION messagebox.parts_cleanup(p_limit integer DEFAULT 10000) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    deleted integer;
BEGIN
    WITH free AS (
        SELECT z.part_id FROM part_zero_sum z
         WHERE NOT EXISTS (SELECT 1 FROM part_ref_count_log_totals t WHERE t.part_id = z.part_id AND t.total <> 0)
           AND NOT EXISTS (SELECT 1 FROM part_ref_count_log_1 l WHERE l.part_id = z.part_id)
           AND NOT EXISTS (SELECT 1 FROM part_ref_count_log_2 l WHERE l.part_id = z.part_id)
         LIMIT p_limit
    ), zero AS (DELETE FROM part_zero_sum WHERE part_id IN (SELECT part_id FROM free)),
       totals AS (DELETE FROM part_ref_count_log_totals WHERE part_id IN (SELECT part_id FROM free)),
       pieces AS (DELETE FROM fragments WHERE part_id IN (SELECT part_id FROM free))
    DELETE FROM parts WHERE part_id IN (SELECT part_id FROM free);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    DELETE FROM part_zero_sum z USING part_ref_count_log_totals t WHERE t.part_id = z.part_id AND t.total <> 0;
    RETURN deleted;
END $$;
