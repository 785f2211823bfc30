-- Record that a task is about to process a message of a batch alone. Returns the number of its attempts, this one
-- included. Raises PR410 if the batch was taken over. The record has to outlive the caller, not the server: the commit
-- does not wait for the disk.
-- Index: primary key of sink_attempts. Locks: the row, until commit.
CREATE OR REPLACE FUNCTION messagebox.record_sink_attempt___HOST__(p_batch_id uuid, p_attempt integer, p_seq bigint)
RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    recorded integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM lock_sink_batch___HOST__(p_batch_id, p_attempt);
    INSERT INTO sink_attempts AS a (batch_id, seq) VALUES (p_batch_id, p_seq)
    ON CONFLICT (batch_id, seq) DO UPDATE SET attempts = a.attempts + 1
    RETURNING a.attempts INTO recorded;
    RETURN recorded;
END $$;
