-- Release the claims of a host instance that stops, or that returns after it has lost its lock, except the rows in
-- p_held, which it still has in memory.
-- Index: work_queue_claimed.
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
    RETURN released;
END $$;
