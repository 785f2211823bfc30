-- Return fragments of a part of a claimed message, from a number on. A large body is never in memory as a whole. Raises
-- PR410 if the claim was taken over.
-- Indexes: work_queue_claimed, orchestration_instances_claimed, fragments' primary key.
CREATE OR REPLACE FUNCTION messagebox.read_fragments___HOST__(
    p_claim_id uuid, p_seq bigint, p_message_id uuid, p_part_id uuid, p_from integer, p_count integer
) RETURNS TABLE (number integer, body bytea)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM __HOST___q q WHERE q.claim_id = p_claim_id AND q.seq = p_seq AND q.message_id = p_message_id
        UNION ALL
        SELECT 1 FROM orchestration_instances i JOIN orchestration_messages m USING (instance_id)
         WHERE i.claim_id = p_claim_id AND i.host_id = __HOST_ID__ AND m.seq = p_seq AND m.message_id = p_message_id)
    THEN
        RAISE EXCEPTION 'claim % no longer holds message %', p_claim_id, p_message_id USING ERRCODE = 'PR410';
    END IF;
    RETURN QUERY
    SELECT f.number, f.body
      FROM fragments f
     WHERE f.part_id = p_part_id AND f.number >= p_from AND f.number < p_from + p_count
       AND EXISTS (SELECT 1 FROM spool s WHERE s.message_id = p_message_id AND p_part_id = ANY (s.part_ids))
     ORDER BY f.number;
END $$;
