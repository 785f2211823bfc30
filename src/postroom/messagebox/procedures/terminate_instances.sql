-- Delete instances that are not active, with their subscriptions and convoys, and release their messages. The callers
-- of requests that orchestrations have get a fault. Returns each as often as it had messages, or once. Instances that
-- do not exist or are active are skipped. operate_on_instances deletes their routing failure reports later.
-- Indexes: subscriptions_instance, convoy_set_instances_instance. Other indexes and locks: as int_lock_idle_instances,
-- int_take_instances and int_fault_requests.
CREATE OR REPLACE FUNCTION messagebox.terminate_instances(p_instance_ids uuid[], p_now timestamptz DEFAULT now())
RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    idle CONSTANT uuid[] := int_lock_idle_instances(p_instance_ids);
    waiting_instance record;
    terminated uuid[];
    released record;
    taken queue_row[];
BEGIN
    PERFORM int_fault_instances(idle, NULL, false, 'was terminated by an operator.');
    -- Nothing more is routed to them before what was is deleted.
    FOR waiting_instance IN
        SELECT s.host_id, s.instance_id FROM subscriptions s WHERE s.instance_id = ANY (idle) AND s.removed_at IS NULL
        UNION
        SELECT v.host_id, c.instance_id FROM convoy_set_instances c JOIN convoy_sets v ON v.id = c.convoy_set_id
         WHERE c.instance_id = ANY (idle)
         ORDER BY 2
    LOOP
        PERFORM int_remove_instances(waiting_instance.host_id, ARRAY[waiting_instance.instance_id], p_now);
        terminated := terminated || waiting_instance.instance_id;
    END LOOP;
    DELETE FROM orchestration_journal WHERE instance_id = ANY (idle);
    DELETE FROM orchestration_instances WHERE instance_id = ANY (idle);
    WITH orchestrated AS (
        DELETE FROM orchestration_messages WHERE instance_id = ANY (idle) RETURNING instance_id, message_id, counted_in
    )
    SELECT array_agg(instance_id) AS instance_ids, array_agg(message_id) AS ids, array_agg(counted_in) AS counts
      INTO released FROM orchestrated;
    IF released.ids IS NOT NULL THEN
        PERFORM int_release(released.ids, released.counts);
    END IF;
    taken := int_take_instances(idle, p_suspended => true);
    -- The callers of other messages in the suspended queue got a fault when these were suspended.
    PERFORM int_fault_instances(
        NULL, ARRAY(SELECT t FROM unnest(taken) t WHERE t.cause IS NULL OR t.cause = 'port stopped'), false,
        'was terminated by an operator.');
    PERFORM int_finish(taken);
    RETURN QUERY
    WITH released_messages (id) AS (
        SELECT unnest(released.instance_ids) UNION ALL SELECT t.instance_id FROM unnest(taken) t
    )
    SELECT r.id FROM released_messages r
    UNION ALL
    (SELECT unnest(terminated) EXCEPT SELECT r.id FROM released_messages r);
END $$;
