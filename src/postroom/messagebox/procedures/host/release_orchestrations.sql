-- Release instances of a claim that the host instance does not work on any more: all, if the answer of the claim was
-- lost, or those whose work was interrupted. They are ready again, and continue from their last persistence points.
-- With p_out_of_memory there was not enough memory for them, which is counted (int_release_failed). Returns their
-- number.
-- Index: orchestration_instances_claimed. Locks: the rows, in the order of their ids.
CREATE OR REPLACE FUNCTION messagebox.release_orchestrations___HOST__(
    p_claim_id uuid, p_instance_ids uuid[] DEFAULT NULL, p_out_of_memory boolean DEFAULT false,
    p_now timestamptz DEFAULT now())
RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    claimed CONSTANT uuid[] := ARRAY(
        SELECT c.instance_id FROM orchestration_instances c
         WHERE c.claim_id = p_claim_id AND c.host_id = __HOST_ID__
           AND (p_instance_ids IS NULL OR c.instance_id = ANY (p_instance_ids))
         ORDER BY c.instance_id FOR UPDATE);
    released integer;
BEGIN
    IF p_out_of_memory THEN
        RETURN int_release_failed(claimed, p_now);
    END IF;
    UPDATE orchestration_instances i
       SET claim_id = NULL, claimed_by = NULL, ready_seq = coalesce(i.ready_seq, nextval('messagebox.queue_sequence'))
     WHERE i.instance_id = ANY (claimed);
    GET DIAGNOSTICS released = ROW_COUNT;
    RETURN released;
END $$;
