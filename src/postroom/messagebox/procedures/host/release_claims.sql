-- A host instance that stops, or that comes back after it lost its lock, gives back what it claimed and does not hold in
-- memory; p_held are the numbers of the rows that it does hold.
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
