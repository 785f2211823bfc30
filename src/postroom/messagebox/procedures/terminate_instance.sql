-- Deletes an instance that nobody is working on, releases its message, and returns how many rows that were (0: none
-- of that id, or it is being worked on right now). Its routing failure report goes later, by operate_on_instances.
-- Indexes: suspended_queue (instance_id), scheduled_queue (instance_id); the work queue is read whole.
CREATE OR REPLACE FUNCTION messagebox.terminate_instance(p_instance_id uuid) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    gone integer := 0;
    deleted uuid[];
BEGIN
    WITH done AS (DELETE FROM suspended_queue WHERE instance_id = p_instance_id RETURNING message_id)
    SELECT array_agg(message_id) INTO deleted FROM done;
    IF deleted IS NULL THEN
        WITH done AS (DELETE FROM scheduled_queue WHERE instance_id = p_instance_id RETURNING message_id)
        SELECT array_agg(message_id) INTO deleted FROM done;
    END IF;
    IF deleted IS NULL THEN
        WITH done AS (
            DELETE FROM work_queue WHERE instance_id = p_instance_id AND claim_id IS NULL RETURNING message_id
        )
        SELECT array_agg(message_id) INTO deleted FROM done;
    END IF;
    IF deleted IS NOT NULL THEN
        PERFORM int_release(deleted);
        gone := cardinality(deleted);
    END IF;
    RETURN gone;
END $$;
