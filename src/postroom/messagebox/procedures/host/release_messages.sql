-- Release messages of a claim that were not attempted, or all of them if p_seqs is null. Returns how many this claim
-- still had.
-- Index: work_queue_claimed.
CREATE OR REPLACE FUNCTION messagebox.release_messages___HOST__(p_claim_id uuid, p_seqs bigint[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    released integer;
BEGIN
    UPDATE __HOST___q SET claim_id = NULL, claimed_by = NULL
     WHERE claim_id = p_claim_id AND (p_seqs IS NULL OR seq = ANY (p_seqs));
    GET DIAGNOSTICS released = ROW_COUNT;
    RETURN released;
END $$;
