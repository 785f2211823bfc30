-- Return the journal of a claimed instance, in order.
-- Indexes: the primary keys of both tables.
CREATE OR REPLACE FUNCTION messagebox.read_orchestration_journal___HOST__(p_claim_id uuid, p_instance_id uuid)
RETURNS TABLE (turns text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
    SELECT j.turns::text
      FROM orchestration_journal j
     WHERE j.instance_id = p_instance_id
       AND EXISTS (SELECT 1 FROM orchestration_instances i
                    WHERE i.instance_id = p_instance_id AND i.claim_id = p_claim_id AND i.host_id = __HOST_ID__)
     ORDER BY j.number;
$$;
