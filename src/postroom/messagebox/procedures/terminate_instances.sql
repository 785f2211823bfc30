-- Delete instances that are not active, with their subscriptions and convoys, release their messages, and return them.
-- Instances that do not exist or are active are skipped. operate_on_instances deletes their routing failure reports
-- later.
-- Indexes: suspended_queue (instance_id), scheduled_queue (instance_id), subscriptions_instance,
-- convoy_set_instances_instance; the work queue is read whole. A plan with the ids in it looks each row up in a hash
-- table of them. A generic plan would compare each row with every id.
-- Locks: the instances' rows in the work queue, which claims leave out from then on.
CREATE OR REPLACE FUNCTION messagebox.terminate_instances(p_instance_ids uuid[], p_now timestamptz DEFAULT now())
RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    idle uuid[];
    waiting_instance record;
    terminated uuid[];
    released uuid[];
    released_counts xid8[];
BEGIN
    -- A claim that is just being made is seen below, once it is committed; no other one comes in between.
    PERFORM 1 FROM work_queue WHERE instance_id = ANY (p_instance_ids) ORDER BY host_id, seq FOR UPDATE;
    PERFORM 1 FROM orchestration_instances WHERE instance_id = ANY (p_instance_ids) ORDER BY instance_id FOR UPDATE;
    idle := ARRAY(SELECT unnest(p_instance_ids)
                  EXCEPT
                  SELECT w.instance_id FROM work_queue w
                   WHERE w.instance_id = ANY (p_instance_ids) AND w.claim_id IS NOT NULL
                  EXCEPT
                  SELECT o.instance_id FROM orchestration_instances o
                   WHERE o.instance_id = ANY (p_instance_ids) AND o.claim_id IS NOT NULL);
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
    ), suspended AS (
        DELETE FROM suspended_queue WHERE instance_id = ANY (idle) RETURNING instance_id, message_id, counted_in
    ), waiting AS (
        DELETE FROM scheduled_queue WHERE instance_id = ANY (idle) RETURNING instance_id, message_id, counted_in
    ), ready AS (
        DELETE FROM work_queue WHERE instance_id = ANY (idle) AND claim_id IS NULL
        RETURNING instance_id, message_id, counted_in
    )
    SELECT terminated || array_agg(instance_id), array_agg(message_id), array_agg(counted_in)
      INTO terminated, released, released_counts
      FROM (TABLE orchestrated UNION ALL TABLE suspended UNION ALL TABLE waiting UNION ALL TABLE ready) gone;
    IF released IS NOT NULL THEN
        PERFORM int_release(released, released_counts);
    END IF;
    RETURN QUERY SELECT DISTINCT unnest(terminated);
END $$;
