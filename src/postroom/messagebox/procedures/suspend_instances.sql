-- Suspend instances that are ready to run or wait for a retry or a service window, with all their messages, on behalf
-- of an operator. Returns the suspended instances. Instances that do not exist or are active are skipped. A scheduled
-- instance keeps the start of its service window, for resume_instances.
-- Indexes: scheduled_queue (instance_id); the work queue is read whole, with plans as in terminate_instances.
-- Locks: the instances' rows in the work queue, first, so that a claim that is just being made is seen once it is
-- committed.
CREATE OR REPLACE FUNCTION messagebox.suspend_instances(p_instance_ids uuid[], p_now timestamptz DEFAULT now())
RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    PERFORM FROM work_queue WHERE instance_id = ANY (p_instance_ids) ORDER BY host_id, seq FOR UPDATE;
    PERFORM FROM orchestration_instances WHERE instance_id = ANY (p_instance_ids) ORDER BY instance_id FOR UPDATE;
    RETURN QUERY WITH active AS MATERIALIZED (
        SELECT instance_id FROM work_queue WHERE instance_id = ANY (p_instance_ids) AND claim_id IS NOT NULL
        UNION ALL
        SELECT instance_id FROM orchestration_instances
         WHERE instance_id = ANY (p_instance_ids) AND claim_id IS NOT NULL
    ), orchestrated AS (
        UPDATE orchestration_instances
           SET suspended_at = p_now, error_code = 'OPERATOR', error_description = 'Suspended by an operator.'
         WHERE instance_id = ANY (p_instance_ids) AND claim_id IS NULL AND suspended_at IS NULL
        RETURNING instance_id
    ), waiting AS (
        DELETE FROM scheduled_queue WHERE instance_id = ANY (p_instance_ids) AND instance_id NOT IN (TABLE active)
        RETURNING seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task,
                  attempt, properties, enqueued_at, counted_in, CASE WHEN state = 256 AND NOT paused THEN valid_from END
                  AS valid_from
    ), ready AS (
        DELETE FROM work_queue
         WHERE instance_id = ANY (p_instance_ids) AND claim_id IS NULL AND instance_id NOT IN (TABLE active)
        RETURNING seq, host_id, message_id, subscription_id, service_class, service_id, instance_id, priority, task,
                  attempt, properties, enqueued_at, counted_in, NULL::timestamptz AS valid_from
    ), suspended AS (
        INSERT INTO suspended_queue (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                     priority, task, attempt, properties, enqueued_at, counted_in, valid_from,
                                     suspended_at, cause, error_code, error_description)
        SELECT t.*, p_now, 4, 'OPERATOR', 'Suspended by an operator.'
          FROM (TABLE waiting UNION ALL TABLE ready) t
        RETURNING instance_id
    )
    TABLE suspended UNION TABLE orchestrated;
END $$;
