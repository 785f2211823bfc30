-- Complete a written batch of this host: delete it and its rows, and release their references. Returns how many rows
-- were deleted, or null, and changes nothing, if the batch was taken over or has ended.
-- Indexes: sink_batches' primary key, work_queue_claimed; see int_release.
CREATE OR REPLACE FUNCTION messagebox.complete_sink_batch___HOST__(p_batch_id uuid, p_attempt integer) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    completed uuid[];
    counts xid8[];
BEGIN
    IF NOT close_sink_batch___HOST__(p_batch_id, p_attempt) THEN
        RETURN NULL;
    END IF;
    WITH done AS (DELETE FROM __HOST___q WHERE claim_id = p_batch_id RETURNING message_id, counted_in)
    SELECT array_agg(message_id), array_agg(counted_in) INTO completed, counts FROM done;
    IF completed IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM int_release(completed, counts);
    RETURN cardinality(completed);
END $$;
