-- A suspended instance goes back into its host's work queue, under its old number. It is delivered even if its send
-- port is stopped (INS-08). Returns whether there was one to resume; refuses (PR409) one that is not resumable.
-- Index: suspended_queue (instance_id).
CREATE OR REPLACE FUNCTION messagebox.resume_instance(p_instance_id uuid, p_now timestamptz DEFAULT now())
RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM 1 FROM suspended_queue WHERE instance_id = p_instance_id AND NOT resumable;
    IF FOUND THEN
        RAISE EXCEPTION 'instance % is suspended as not resumable', p_instance_id USING ERRCODE = 'PR409';
    END IF;
    WITH resumed AS (
        DELETE FROM suspended_queue WHERE instance_id = p_instance_id AND resumable RETURNING *
    )
    INSERT INTO work_queue (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                            priority, task, attempt, enqueued_at)
    SELECT seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task, 0, p_now
      FROM resumed;
    RETURN FOUND;
END $$;
