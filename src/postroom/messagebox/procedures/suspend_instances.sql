-- Suspend instances that are ready to run or wait for a retry or a service window, with all their messages, on behalf
-- of an operator. Returns the suspended instances. Instances that do not exist or are active are skipped. A scheduled
-- instance keeps the start of its service window, for resume_instances. The callers of requests that orchestrations
-- have get a fault.
-- Indexes and locks: as int_lock_idle_instances and int_take_instances, then see int_fault_requests.
CREATE OR REPLACE FUNCTION messagebox.suspend_instances(p_instance_ids uuid[], p_now timestamptz DEFAULT now())
RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    idle CONSTANT uuid[] := int_lock_idle_instances(p_instance_ids);
    orchestrated uuid[];
    taken queue_row;
    suspended queue_row[];
BEGIN
    WITH changed AS (
        UPDATE orchestration_instances
           SET suspended_at = p_now, error_code = 'OPERATOR', error_description = 'Suspended by an operator.'
         WHERE instance_id = ANY (idle) AND suspended_at IS NULL
        RETURNING instance_id
    )
    SELECT array_agg(instance_id) INTO orchestrated FROM changed;
    RETURN QUERY SELECT unnest(orchestrated);
    FOREACH taken IN ARRAY coalesce(int_take_instances(idle, p_suspended => false), '{}') LOOP
        IF taken.state = 'waiting to retry' OR taken.paused THEN
            taken.valid_from := NULL;
        END IF;
        suspended := suspended || int_fail(taken, p_now, 'operator', true, 'OPERATOR', 'Suspended by an operator.');
    END LOOP;
    PERFORM int_suspend(suspended);
    PERFORM int_fault_instances(orchestrated, suspended, true, 'was suspended by an operator.');
    RETURN QUERY SELECT DISTINCT s.instance_id FROM unnest(suspended) s;
END $$;
