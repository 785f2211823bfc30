-- Carry out the next piece of an operation on instances, of at most p_limit instances, or of the oldest unfinished one
-- (null). The command that started the operation calls it, and the job of the hosts does, in a transaction for each
-- piece. So an operation continues after a crash. A piece is recorded in the audit, and wakes the hosts that get work.
-- An active instance is suspended or terminated as soon as it is not active any more (INS-05, 06). Of an ordered send
-- port that was chosen with one message, only that message is terminated, if it is still the first.
-- Returns nothing if there is no such operation, if it is finished, or if another session carries out a piece of it.
-- Indexes: operations_unfinished, operation_instances' primary key; those of the functions that change instances.
-- Locks: the operation's row.
CREATE OR REPLACE FUNCTION messagebox.continue_operation(
    p_operation_id bigint, p_limit integer, p_now timestamptz DEFAULT now()
) RETURNS TABLE (operation_id bigint, handled bigint, is_finished boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    op operations%ROWTYPE;
    wanted uuid[];
    numbers bigint[];                                    -- of the wanted instances in the operation
    seqs bigint[];                                       -- of their messages, or nulls for all of them
    deleted bigint := 0;
    changed_ids uuid[] := '{}';
    moved_hosts smallint[] := '{}';                      -- of each instance, or of each host if the ids are not known
    piece bigint := 0;
    finished boolean := false;
    changed_messages uuid[] := '{}';                     -- of ordered send ports
    terminated bigint := 0;                              -- messages
BEGIN
    SELECT * INTO op FROM operations o
     WHERE o.finished_at IS NULL AND (p_operation_id IS NULL OR o.id = p_operation_id)
     ORDER BY o.continued_at NULLS FIRST, o.id LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF op.kind = 'start' THEN
        IF op.group_id IS NULL THEN
            piece := resume_stopped(op.service_id, p_limit);
            moved_hosts := ARRAY(SELECT s.host_id FROM services s WHERE s.id = op.service_id AND piece > 0);
        ELSE
            SELECT coalesce(sum(r.resumed_count), 0), coalesce(array_agg(r.host_id), '{}') INTO piece, moved_hosts
              FROM resume_stopped_group(op.group_id, p_limit) r;
        END IF;
        finished := piece < p_limit;
    ELSE
        -- Pending ones are tried when no others are left.
        SELECT coalesce(array_agg(i.instance_id), '{}'), array_agg(i.number), array_agg(i.seq)
          INTO wanted, numbers, seqs
          FROM (SELECT n.instance_id, n.number, n.seq FROM operation_instances n
                 WHERE n.operation_id = op.id
                   AND n.pending = NOT EXISTS (SELECT 1 FROM operation_instances o
                                                WHERE o.operation_id = op.id AND NOT o.pending)
                 ORDER BY n.number LIMIT p_limit) i;
        SELECT coalesce(array_agg(c.instance_id), '{}'), coalesce(array_agg(c.host_id), '{}'),
               coalesce(array_agg(c.message_id) FILTER (WHERE c.message_id IS NOT NULL), '{}'),
               coalesce(sum(c.messages), 0)
          INTO changed_ids, moved_hosts, changed_messages, terminated
          FROM int_change_instances(op.kind, wanted, seqs, p_now) c;
        piece := cardinality(changed_ids);
        IF op.kind IN ('suspend', 'terminate') THEN
            -- Only one operation can be pending for an instance.
            UPDATE operation_instances i SET pending = true
             WHERE i.operation_id = op.id AND NOT i.pending AND i.number = ANY (numbers)
               AND i.instance_id IN (SELECT w.instance_id FROM work_queue w WHERE w.claim_id IS NOT NULL
                                     UNION ALL
                                     SELECT o.instance_id FROM orchestration_instances o WHERE o.claim_id IS NOT NULL)
               AND (i.seq IS NULL OR EXISTS (SELECT 1 FROM work_queue w
                                              WHERE w.instance_id = i.instance_id AND w.task = 'deliver_in_order'
                                                AND w.seq = i.seq))
               AND NOT EXISTS (SELECT 1 FROM operation_instances other
                                WHERE other.instance_id = i.instance_id AND other.pending);
        END IF;
        DELETE FROM operation_instances i
         WHERE i.operation_id = op.id AND i.number = ANY (numbers)
           AND (NOT i.pending
                OR i.instance_id NOT IN (SELECT w.instance_id FROM work_queue w WHERE w.claim_id IS NOT NULL
                                         UNION ALL
                                         SELECT o.instance_id FROM orchestration_instances o
                                          WHERE o.claim_id IS NOT NULL)
                -- The message was sent.
                OR i.seq IS NOT NULL AND NOT EXISTS (
                    SELECT 1 FROM work_queue w
                     WHERE w.instance_id = i.instance_id AND w.task = 'deliver_in_order' AND w.seq = i.seq));
        GET DIAGNOSTICS deleted = ROW_COUNT;
        finished := op.remaining = deleted;
    END IF;
    UPDATE operations o
       SET changed = o.changed + piece, messages = o.messages + terminated, remaining = o.remaining - deleted,
           continued_at = clock_timestamp(),
           hosts = o.hosts || coalesce((
               SELECT jsonb_object_agg(m.name, coalesce((op.hosts ->> m.name)::bigint, 0) + m.count)
                 FROM (SELECT h.name, count(*) AS count
                         FROM unnest(moved_hosts) AS u (host_id) JOIN hosts h ON h.id = u.host_id
                        GROUP BY h.name) m), '{}'),
           finished_at = CASE WHEN finished THEN clock_timestamp() END
     WHERE o.id = op.id;
    IF piece > 0 AND op.kind <> 'start' THEN
        PERFORM record_action('instance.' || op.kind, 'operation ' || op.id, NULL,
                              jsonb_build_object('instances', piece, 'ids', to_jsonb(changed_ids))
                              || CASE WHEN changed_messages = '{}' THEN '{}'
                                      ELSE jsonb_build_object('messages', to_jsonb(changed_messages)) END,
                              op.requested_by, op.os_user, op.reason);
    END IF;
    PERFORM pg_notify('postroom_' || lower(h.name), '') FROM hosts h WHERE h.id = ANY (moved_hosts);
    RETURN QUERY SELECT op.id, piece, finished;
END $$;
