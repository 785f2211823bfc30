-- Release the instances of a claim whose answer was lost, or that could not be read. Returns their number.
-- Index: orchestration_instances_claimed.
CREATE OR REPLACE FUNCTION messagebox.release_orchestrations___HOST__(p_claim_id uuid) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    released integer;
BEGIN
    UPDATE orchestration_instances
       SET claim_id = NULL, claimed_by = NULL, ready_seq = coalesce(ready_seq, nextval('messagebox.queue_sequence'))
     WHERE claim_id = p_claim_id AND host_id = __HOST_ID__;
    GET DIAGNOSTICS released = ROW_COUNT;
    RETURN released;
END $$;
