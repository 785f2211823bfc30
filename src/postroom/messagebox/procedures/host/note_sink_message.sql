-- Notes that a task begins with a message of a batch, alone; says how often that was noted, this time included. Refuses (PR410)
-- when the batch was taken over. The note has to outlive the caller, not the server: nobody waits for the disk.
-- Index: sink_notes' primary key. Locks: the note, until commit.
CREATE OR REPLACE FUNCTION messagebox.note_sink_message___HOST__(p_batch_id uuid, p_attempt integer, p_seq bigint)
RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    times integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM hold_sink_batch___HOST__(p_batch_id, p_attempt);
    INSERT INTO sink_notes AS n (batch_id, seq) VALUES (p_batch_id, p_seq)
    ON CONFLICT (batch_id, seq) DO UPDATE SET begun = n.begun + 1
    RETURNING n.begun INTO times;
    RETURN times;
END $$;
