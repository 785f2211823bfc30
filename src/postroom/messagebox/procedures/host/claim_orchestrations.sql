-- Take the messages for orchestrations of host __HOST__ from its work queue, wake the instances whose timer is due, and
-- claim instances that are ready. Returns them by priority, then by the number of their first message. The messages of
-- an instance that is claimed or suspended are taken too: they wait at the instance. The callers of requests that join
-- a suspended instance get a fault. A first message creates its instance.
-- Only the orchestrations in p_services are claimed, whose code the host instance has loaded: one that was just applied
-- may be activated before. Versions of an orchestration share their convoys: the first message decides about the
-- version.
-- An instance with a pending operation is left out: it is suspended or terminated now. `timers_until` says
-- which timers may fire: those that are due now, or none if a message that came before the timer is still in the queue.
-- Indexes: work_queue_unclaimed, work_queue_instance, suspended_queue_instance, orchestration_instances_due,
-- orchestration_instances_ready, orchestration_instances_suspected, operation_instances_pending.
-- Locks: the taken rows; the instances, in the order of their ids, so that it waits for persistence points of these;
-- then see int_fault_requests.
CREATE OR REPLACE FUNCTION messagebox.claim_orchestrations___HOST__(
    p_claim_id uuid, p_host_instance integer, p_limit integer, p_services uuid[], p_now timestamptz DEFAULT now()
) RETURNS TABLE (
    instance_id uuid, service_id uuid, journal_length integer, journals integer, carried text, timers_until timestamptz,
    process_deaths smallint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
    suspect uuid;
    too_late queue_row[];      -- the taken messages of suspended instances
BEGIN
    WITH best AS MATERIALIZED (
        SELECT w.ctid AS place, w.instance_id, w.seq, w.task FROM __HOST___q w
         WHERE w.claim_id IS NULL AND w.task <> 'deliver_in_order' AND w.service_class = 'orchestrations'
           AND w.service_id = ANY (p_services)
         ORDER BY w.priority, w.seq LIMIT 10 * p_limit FOR UPDATE SKIP LOCKED
    ), activating AS MATERIALIZED (
        -- The first message of a convoy has another priority than those that join its instance, which wait for it.
        -- The subquery is no NOT EXISTS: PostgreSQL may read all instances for that.
        SELECT w.ctid AS place
          FROM (SELECT b.instance_id, min(b.seq) AS seq FROM best b
                 WHERE b.task = 'join_instance'
                   AND (SELECT 1 FROM orchestration_instances i WHERE i.instance_id = b.instance_id) IS NULL
                 GROUP BY b.instance_id) n
         CROSS JOIN LATERAL (
               SELECT q.ctid FROM __HOST___q q
                WHERE q.instance_id = n.instance_id AND q.task = 'join_instance' AND q.claim_id IS NULL
                  AND q.seq < n.seq
                  FOR UPDATE SKIP LOCKED) w
    ), taken AS (
        DELETE FROM __HOST___q q
         WHERE q.ctid = ANY (ARRAY(SELECT b.place FROM best b UNION ALL SELECT a.place FROM activating a))
        RETURNING q.*
    ), delivered AS (
        INSERT INTO orchestration_messages (instance_id, seq, message_id, subscription_id, enqueued_at, counted_in)
        SELECT t.instance_id, t.seq, t.message_id, t.subscription_id, t.enqueued_at, t.counted_in FROM taken t
    ), joined AS (
        INSERT INTO orchestration_instances AS i (instance_id, host_id, service_id, priority, created_at, ready_seq)
        SELECT t.instance_id, __HOST_ID__, (array_agg(t.service_id ORDER BY t.seq))[1], min(t.priority), p_now,
               min(t.seq)
          FROM taken t GROUP BY t.instance_id ORDER BY t.instance_id
        ON CONFLICT (instance_id) DO UPDATE
           SET ready_seq = least(i.ready_seq, excluded.ready_seq), priority = excluded.priority
        RETURNING i.instance_id, i.suspended_at
    )
    SELECT array_agg(ROW(t.seq, __HOST_ID__, t.message_id, t.subscription_id, t.service_class, t.service_id,
                         t.instance_id, t.priority, t.task, t.attempt, NULL, NULL, t.enqueued_at, t.counted_in, NULL,
                         NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::queue_row)
      INTO too_late
      FROM taken t
     WHERE t.instance_id = ANY (ARRAY(SELECT j.instance_id FROM joined j WHERE j.suspended_at IS NOT NULL));
    IF too_late IS NOT NULL THEN
        -- The callers of the other messages of these instances have got theirs.
        PERFORM int_fault_instances(NULL, too_late, true, 'is suspended.');
    END IF;
    UPDATE orchestration_instances i SET ready_seq = nextval('messagebox.queue_sequence')
     WHERE i.instance_id = ANY (ARRAY(
           SELECT w.instance_id FROM orchestration_instances w
            WHERE w.host_id = __HOST_ID__ AND w.wake_at <= p_now AND w.ready_seq IS NULL AND w.claim_id IS NULL
              AND w.suspended_at IS NULL
            ORDER BY w.wake_at LIMIT 10 * p_limit FOR UPDATE SKIP LOCKED));
    -- Two host instances died while they had these, and one of them may have killed both: claim one at a time. The
    -- condition is for claimed_by: with one for claim_id PostgreSQL may read orchestration_instances_ready, which is
    -- large, instead of orchestration_instances_suspected.
    SELECT w.instance_id INTO suspect FROM orchestration_instances w
     WHERE w.host_id = __HOST_ID__ AND w.process_deaths >= 2 AND w.claimed_by IS NULL AND w.suspended_at IS NULL
       AND w.ready_seq IS NOT NULL AND w.service_id = ANY (p_services)
       AND NOT EXISTS (SELECT 1 FROM orchestration_instances o
                        WHERE o.host_id = __HOST_ID__ AND o.process_deaths >= 2 AND o.claimed_by = p_host_instance)
     ORDER BY w.ready_seq LIMIT 1;
    RETURN QUERY
    WITH ready AS MATERIALIZED (
        SELECT w.instance_id, w.priority, w.ready_seq FROM orchestration_instances w
         WHERE w.host_id = __HOST_ID__ AND w.ready_seq IS NOT NULL AND w.claim_id IS NULL AND w.suspended_at IS NULL
           AND w.service_id = ANY (p_services)
           AND (w.process_deaths < 2 OR w.instance_id = suspect)
           -- An earlier message is still in the queue if the transaction that took it has failed. It comes first.
           AND NOT EXISTS (SELECT 1 FROM __HOST___q q
                            WHERE q.instance_id = w.instance_id AND q.task = 'join_instance' AND q.seq < w.ready_seq)
           -- The first message of a convoy may be suspended. The others wait until it is resumed.
           AND (w.journal_length > 0 OR w.journals > 0 OR NOT EXISTS (
                SELECT 1 FROM __HOST___q_suspended s WHERE s.instance_id = w.instance_id AND s.seq < w.ready_seq))
           AND NOT EXISTS (SELECT 1 FROM operation_instances o WHERE o.instance_id = w.instance_id AND o.pending)
         ORDER BY w.priority, w.ready_seq LIMIT p_limit FOR UPDATE SKIP LOCKED
    ), claimed AS (
        UPDATE orchestration_instances i SET claim_id = p_claim_id, claimed_by = p_host_instance, ready_seq = NULL
         WHERE i.instance_id = ANY (ARRAY(SELECT r.instance_id FROM ready r))
        RETURNING i.instance_id, i.service_id, i.journal_length, i.journals, i.carried::text,
                  -- Another host instance may be taking the message now. Its row is visible until then.
                  CASE WHEN i.wake_at <= p_now AND EXISTS (
                       SELECT 1 FROM __HOST___q q
                        WHERE q.instance_id = i.instance_id AND q.task = 'join_instance'
                          AND q.enqueued_at <= i.wake_at)
                       THEN NULL ELSE p_now END AS timers_until,
                  i.process_deaths
    )
    SELECT c.* FROM claimed c JOIN ready r ON r.instance_id = c.instance_id ORDER BY r.priority, r.ready_seq;
END $$;
