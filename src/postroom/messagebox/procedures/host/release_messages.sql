-- The messages of a claim that nobody tried to deliver, or (p_seqs is null) all of them: back to where they were, for
-- whoever claims next. Returns how many of them this claim still held.
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
