-- Record that a task is about to process some messages of a batch together, after a failed task. Those that stay
-- recorded are suspected to have killed the worker, and are processed alone by the next task. Returns the messages that
-- are suspected already, which are not recorded again. Raises PR410 if the batch was taken over. The commit does not
-- wait for the disk.
-- Index: primary key of sink_attempts. Locks: the rows, until commit.
CREATE OR REPLACE FUNCTION messagebox.suspect_sink_messages___HOST__(
    p_batch_id uuid, p_attempt integer, p_seqs bigint[])
RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    suspected bigint[];
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM lock_sink_batch___HOST__(p_batch_id, p_attempt);
    suspected := ARRAY(SELECT a.seq FROM sink_attempts a WHERE a.batch_id = p_batch_id AND a.seq = ANY (p_seqs));
    INSERT INTO sink_attempts (batch_id, seq, attempts)
    SELECT p_batch_id, s.seq, 0 FROM unnest(p_seqs) AS s (seq) WHERE s.seq <> ALL (suspected)
    ON CONFLICT DO NOTHING;
    RETURN QUERY SELECT unnest(suspected);
END $$;
