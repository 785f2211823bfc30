-- Resume, reroute, suspend or terminate instances, and record each that was changed in the audit. An active one is
-- suspended or terminated later, by an operation of its own, unless one is pending for it already. Returns both, with
-- the name of the host that gets a resumed or rerouted one and the number of terminated messages. Instances whose state
-- does not allow it are skipped. With p_first_only only the first message of an ordered send port is terminated.
-- Indexes and locks: as int_change_instances, int_describe_instance and continue_operation.
CREATE OR REPLACE FUNCTION messagebox.change_instances(
    p_kind text, p_instance_ids uuid[], p_first_only boolean DEFAULT false
) RETURNS TABLE (instance_id uuid, pending boolean, host text, messages bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    described CONSTANT jsonb := (SELECT jsonb_object_agg(i, int_describe_instance(i)) FROM unnest(p_instance_ids) i);
    state_after CONSTANT text := CASE p_kind WHEN 'suspend' THEN 'suspended' WHEN 'terminate' THEN 'terminated'
                                             ELSE 'ready to run' END;
    chosen record;
    changed record;
    changed_ids uuid[] := '{}';
    active_id uuid;
    new_operation bigint;
BEGIN
    SELECT array_agg(i) AS ids, array_agg(CASE WHEN p_first_only THEN int_first_number(i) END) AS seqs
      INTO chosen FROM unnest(p_instance_ids) i;
    FOR changed IN
        SELECT c.instance_id, h.name AS host, c.messages, c.message_id
          FROM int_change_instances(p_kind, chosen.ids, chosen.seqs, now()) c LEFT JOIN hosts h ON h.id = c.host_id
    LOOP
        changed_ids := changed_ids || changed.instance_id;
        PERFORM record_action(
            'instance.' || p_kind, changed.instance_id::text, described -> changed.instance_id::text,
            jsonb_build_object('state', state_after)
            || CASE WHEN changed.message_id IS NULL THEN '{}'
                    ELSE jsonb_build_object('message', changed.message_id) END);
        PERFORM pg_notify('postroom_' || lower(changed.host), '') WHERE changed.host IS NOT NULL;
        RETURN QUERY SELECT changed.instance_id, false, changed.host, changed.messages;
    END LOOP;
    IF p_kind IN ('suspend', 'terminate') THEN
        FOR active_id IN
            SELECT w.instance_id FROM work_queue w
             WHERE w.instance_id = ANY (p_instance_ids) AND w.claim_id IS NOT NULL
            UNION
            SELECT o.instance_id FROM orchestration_instances o
             WHERE o.instance_id = ANY (p_instance_ids) AND o.claim_id IS NOT NULL
            EXCEPT
            SELECT i.instance_id FROM operation_instances i WHERE i.pending
            EXCEPT
            SELECT unnest(changed_ids)
        LOOP
            new_operation := start_operation(p_kind, 'instance ' || active_id, ARRAY[active_id], p_first_only);
            -- Marks the instance, so that no other operation can become pending.
            PERFORM continue_operation(new_operation, 1);
            RETURN QUERY SELECT active_id, true, NULL::text, 0::bigint;
        END LOOP;
    END IF;
END $$;
