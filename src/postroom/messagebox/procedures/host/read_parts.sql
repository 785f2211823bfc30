-- Return all parts of a claimed message, in order. The body of a part in fragments is null. Raises PR410 if the claim
-- was taken over.
-- Indexes: work_queue_claimed, orchestration_instances_claimed, spool's and parts' primary keys.
CREATE OR REPLACE FUNCTION messagebox.read_parts___HOST__(p_claim_id uuid, p_seq bigint, p_message_id uuid)
RETURNS TABLE (part_id uuid, name text, content_type text, charset text, size bigint, body bytea)
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
    SELECT p.part_id, p.name, p.content_type, p.charset, p.size, p.body
      FROM spool s
     CROSS JOIN unnest(s.part_ids) WITH ORDINALITY AS o (part_id, number)
      JOIN parts p ON p.part_id = o.part_id
     WHERE s.message_id = p_message_id
     ORDER BY o.number;
END $$;
