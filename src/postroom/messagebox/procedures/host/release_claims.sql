-- Release the claims of a host instance that stops, or that returns after it has lost its lock, except the rows in
-- p_held, which it still has in memory. Orchestrations in progress continue from their last persistence point.
-- Indexes: work_queue_claimed, orchestration_instances_claimed. Locks: the rows; orchestrations in the order of their
-- ids, as those that store them do.
CREATE OR REPLACE FUNCTION messagebox.release_claims___HOST__(p_host_instance integer, p_held bigint[] DEFAULT '{}')
RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    released integer;
BEGIN
    UPDATE __HOST___q SET claim_id = NULL, claimed_by = NULL
     WHERE claim_id IS NOT NULL AND claimed_by = p_host_instance AND seq <> ALL (p_held);
    GET DIAGNOSTICS released = ROW_COUNT;
    UPDATE orchestration_instances i
       SET claim_id = NULL, claimed_by = NULL, ready_seq = coalesce(i.ready_seq, nextval('messagebox.queue_sequence'))
     WHERE i.instance_id = ANY (ARRAY(
           SELECT c.instance_id FROM orchestration_instances c
            WHERE c.claim_id IS NOT NULL AND c.claimed_by = p_host_instance AND c.host_id = __HOST_ID__
            ORDER BY c.instance_id FOR UPDATE));
    RETURN released;
END $$;
