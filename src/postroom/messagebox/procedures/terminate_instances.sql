-- Deletes instances that nobody is working on, releases their messages, and returns which they were; one that is not
-- there, or is being worked on right now, is left out. Routing failure reports go later, by operate_on_instances.
-- Indexes: suspended_queue (instance_id), scheduled_queue (instance_id); the work queue is read whole.
CREATE OR REPLACE FUNCTION messagebox.terminate_instances(p_instance_ids uuid[]) RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    terminated uuid[];
    released uuid[];
BEGIN
    WITH suspended AS (
        DELETE FROM suspended_queue WHERE instance_id = ANY (p_instance_ids) RETURNING instance_id, message_id
    ), waiting AS (
        DELETE FROM scheduled_queue WHERE instance_id = ANY (p_instance_ids) RETURNING instance_id, message_id
    ), ready AS (
        DELETE FROM work_queue WHERE instance_id = ANY (p_instance_ids) AND claim_id IS NULL
        RETURNING instance_id, message_id
    )
    SELECT array_agg(instance_id), array_agg(message_id) INTO terminated, released
      FROM (TABLE suspended UNION ALL TABLE waiting UNION ALL TABLE ready) gone;
    IF released IS NOT NULL THEN
        PERFORM int_release(released);
    END IF;
    RETURN QUERY SELECT unnest(terminated);
END $$;
