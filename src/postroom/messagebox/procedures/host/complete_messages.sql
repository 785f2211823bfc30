-- Complete messages of a claim, all of them if p_seqs is null: delete their rows and release their references. The
-- caller publishes those with the tasks publish and reroute again in the same transaction, so they are not deleted
-- here. Returns how many rows were deleted. Fewer than requested means that the claim was taken over, and the results
-- of the missing ones are void.
-- Index: work_queue_claimed.
CREATE OR REPLACE FUNCTION messagebox.complete_messages___HOST__(p_claim_id uuid, p_seqs bigint[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    released record;
BEGIN
    IF p_seqs IS NULL THEN
        WITH done AS (DELETE FROM __HOST___q WHERE claim_id = p_claim_id RETURNING *)
        SELECT array_agg(message_id) AS ids, array_agg(counted_in) AS counts,
               array_agg(message_id) FILTER (WHERE task IN ('publish', 'reroute')) AS published_again
          INTO released FROM done;
    ELSE
        WITH done AS (DELETE FROM __HOST___q WHERE claim_id = p_claim_id AND seq = ANY (p_seqs) RETURNING *)
        SELECT array_agg(message_id) AS ids, array_agg(counted_in) AS counts,
               array_agg(message_id) FILTER (WHERE task IN ('publish', 'reroute')) AS published_again
          INTO released FROM done;
    END IF;
    IF released.published_again IS NOT NULL THEN
        PERFORM int_count_in_logs(released.published_again);
    END IF;
    IF released.ids IS NOT NULL THEN
        PERFORM int_release(released.ids, released.counts);
    END IF;
    RETURN coalesce(cardinality(released.ids), 0);
END $$;
