-- The messages of a claim that were handled: their rows go, their references are released. Returns how many there
-- were; fewer than asked for means that the claim was taken over, and the caller's result for the others is void.
-- Index: work_queue_claimed.
CREATE OR REPLACE FUNCTION messagebox.complete_messages___HOST__(p_claim_id uuid, p_seqs bigint[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    deleted uuid[];
BEGIN
    WITH done AS (
        DELETE FROM __HOST___q WHERE claim_id = p_claim_id AND seq = ANY (p_seqs) RETURNING message_id
    )
    SELECT array_agg(message_id) INTO deleted FROM done;
    IF deleted IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM int_release(deleted);
    RETURN cardinality(deleted);
END $$;
