-- Claim the first messages of ordered send ports, for dequeue_messages_<host>: up to p_ahead messages of each port, and
-- up to p_limit of all. A port whose first message has a better priority or a lower number comes first. Many messages
-- of few ports are claimed rather than few messages of many ports, because a port takes more time than a message.
-- A port is delivered by one claim at a time: it waits while any of its messages is claimed. A message waits while a
-- message with a lower number is scheduled or suspended, or is in a queue of a host that the port was moved away from.
-- Publishes commit the rows of a port in the order of their numbers (lock_ordered_instances), so the unclaimed rows
-- with the lowest numbers that a statement sees are the first ones.
-- The first statement finds ports and locks them. The second one sees what other claims committed before these locks
-- were free. Operators lock rows without these locks: if one of the rows is locked, nothing is claimed until the next
-- call.
-- Indexes: work_queue_ordered, from one port to the next, so the length of a waiting queue does not matter;
-- work_queue_ordered_claimed, scheduled_queue_instance, suspended_queue_instance, the primary key of services.
-- Locks: advisory (7006, hash of the instance) of each port, tried, and the claimed rows, for the moment of the claim.
CREATE OR REPLACE FUNCTION messagebox.claim_ordered_messages___HOST__(
    p_claim_id uuid, p_host_instance integer, p_limit integer, p_ahead integer, p_excluded uuid[]
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ports uuid[];
    expected integer;
    claimed integer;
BEGIN
    WITH RECURSIVE waiting AS (
        (SELECT q.instance_id FROM __HOST___q q WHERE q.task = 'deliver_in_order' ORDER BY q.instance_id LIMIT 1)
        UNION ALL
        SELECT (SELECT q.instance_id FROM __HOST___q q
                 WHERE q.task = 'deliver_in_order' AND q.instance_id > w.instance_id
                 ORDER BY q.instance_id LIMIT 1)
          FROM waiting w WHERE w.instance_id IS NOT NULL
    ), free AS (
        SELECT w.instance_id, f.priority, f.seq
          FROM waiting w
         CROSS JOIN LATERAL (SELECT q.priority, q.seq FROM __HOST___q q
                              WHERE q.task = 'deliver_in_order' AND q.instance_id = w.instance_id
                              ORDER BY q.seq LIMIT 1) f
         WHERE w.instance_id <> ALL (p_excluded)
           AND NOT EXISTS (SELECT 1 FROM __HOST___q o
                            WHERE o.task = 'deliver_in_order' AND o.claim_id IS NOT NULL
                              AND o.instance_id = w.instance_id)
           AND NOT EXISTS (SELECT 1 FROM __HOST___q_scheduled o WHERE o.instance_id = w.instance_id AND o.seq < f.seq)
           AND NOT EXISTS (SELECT 1 FROM __HOST___q_suspended o WHERE o.instance_id = w.instance_id AND o.seq < f.seq)
         ORDER BY f.priority, f.seq LIMIT p_limit
    )
    SELECT array_agg(instance_id) INTO ports FROM free WHERE pg_try_advisory_xact_lock(7006, uuid_hash(instance_id));
    IF ports IS NULL THEN
        RETURN;
    END IF;
    WITH first_rows AS MATERIALIZED (
        SELECT f.ctid AS row_id
          FROM unnest(ports) AS p (instance_id)
         CROSS JOIN LATERAL (SELECT least(
                (SELECT min(o.seq) FROM __HOST___q_scheduled o WHERE o.instance_id = p.instance_id),
                (SELECT min(o.seq) FROM __HOST___q_suspended o WHERE o.instance_id = p.instance_id),
                (SELECT min(o.seq) FROM services s JOIN instances o ON o.instance_id = s.id
                  WHERE s.id = p.instance_id AND s.former_host_ids <> '{}' AND o.host_id <> __HOST_ID__),
                9223372036854775807) AS before) b
         CROSS JOIN LATERAL (SELECT q.ctid FROM __HOST___q q
                              WHERE q.task = 'deliver_in_order' AND q.instance_id = p.instance_id AND q.seq < b.before
                              ORDER BY q.seq LIMIT p_ahead) f
         WHERE NOT EXISTS (SELECT 1 FROM __HOST___q o
                            WHERE o.task = 'deliver_in_order' AND o.claim_id IS NOT NULL
                              AND o.instance_id = p.instance_id)
         LIMIT p_limit
    ), done AS (
        UPDATE __HOST___q q SET claim_id = p_claim_id, claimed_by = p_host_instance
         WHERE q.ctid = ANY (ARRAY(SELECT l.ctid FROM __HOST___q l
                                    WHERE l.ctid = ANY (ARRAY(SELECT row_id FROM first_rows)) AND l.claim_id IS NULL
                                      FOR UPDATE SKIP LOCKED))
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM first_rows), (SELECT count(*) FROM done) INTO expected, claimed;
    IF claimed < expected THEN
        UPDATE __HOST___q SET claim_id = NULL, claimed_by = NULL WHERE claim_id = p_claim_id;
    END IF;
END $$;
