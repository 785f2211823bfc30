-- Complete messages of a claim, all of them if p_seqs is null: delete their rows and release their references. Returns
-- how many rows were deleted. Fewer than requested means that the claim was taken over, and the results of the missing
-- ones are void.
-- Index: work_queue_claimed.
CREATE OR REPLACE FUNCTION messagebox.complete_messages___HOST__(p_claim_id uuid, p_seqs bigint[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    deleted uuid[];
    counts xid8[];
BEGIN
    IF p_seqs IS NULL THEN
        WITH done AS (DELETE FROM __HOST___q WHERE claim_id = p_claim_id RETURNING message_id, counted_in)
        SELECT array_agg(message_id), array_agg(counted_in) INTO deleted, counts FROM done;
    ELSE
        WITH done AS (
            DELETE FROM __HOST___q WHERE claim_id = p_claim_id AND seq = ANY (p_seqs) RETURNING message_id, counted_in
        )
        SELECT array_agg(message_id), array_agg(counted_in) INTO deleted, counts FROM done;
    END IF;
    IF deleted IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM int_release(deleted, counts);
    RETURN cardinality(deleted);
END $$;
