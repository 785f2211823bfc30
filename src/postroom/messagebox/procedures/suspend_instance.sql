-- An operator takes an instance that is ready to run, or waits for its next attempt, out of the way.
-- Indexes: scheduled_queue (instance_id); the work queue is read whole.
CREATE OR REPLACE FUNCTION messagebox.suspend_instance(p_instance_id uuid, p_now timestamptz DEFAULT now())
RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    taken bigint;
BEGIN
    WITH waiting AS (
        DELETE FROM scheduled_queue WHERE instance_id = p_instance_id
        RETURNING seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task,
                  attempt, enqueued_at
    ), ready AS (
        DELETE FROM work_queue WHERE instance_id = p_instance_id AND claim_id IS NULL
        RETURNING seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task,
                  attempt, enqueued_at
    )
    INSERT INTO suspended_queue (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                 priority, task, attempt, enqueued_at, suspended_at, cause, error_code, error_description)
    SELECT t.*, p_now, 4, 'OPERATOR', 'Suspended by an operator.'
      FROM (TABLE waiting UNION ALL TABLE ready) t;
    GET DIAGNOSTICS taken = ROW_COUNT;
    RETURN taken > 0;
END $$;
