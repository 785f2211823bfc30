-- Operations_OperateOnInstances: delete routing failure reports whose instance no longer exists. Returns their number.
-- A report without an instance stays until an operator terminates it.
-- Index: suspended_queue_reports; the queues are read whole, and hashed (nested loops are off, see message_cleanup).
CREATE OR REPLACE FUNCTION messagebox.operate_on_instances() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_nestloop = off AS $$
DECLARE
    deleted uuid[];
    counts xid8[];
BEGIN
    WITH done AS (
        DELETE FROM suspended_queue r
         WHERE r.cause = 3 AND r.related_instance_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM suspended_queue s WHERE s.instance_id = r.related_instance_id)
           AND NOT EXISTS (SELECT 1 FROM scheduled_queue s WHERE s.instance_id = r.related_instance_id)
           AND NOT EXISTS (SELECT 1 FROM work_queue w WHERE w.instance_id = r.related_instance_id)
        RETURNING r.message_id, r.counted_in
    )
    SELECT array_agg(message_id), array_agg(counted_in) INTO deleted, counts FROM done;
    IF deleted IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM set_config('enable_nestloop', 'on', true);
    PERFORM int_release(deleted, counts);
    RETURN cardinality(deleted);
END $$;
