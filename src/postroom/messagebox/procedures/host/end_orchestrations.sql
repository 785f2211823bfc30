-- The last persistence points of claimed instances: they have ended. Their subscriptions, convoys, journals and rows
-- are deleted, and the messages that they have received are released. The messages of a convoy that its instance has
-- not received are routed as if they came now: all of them activate the next instance of the convoy, under their old
-- numbers, or are suspended for it if the orchestration is stopped. They match the activation subscription if they were
-- routed by it, or by one with the same filter before. All other messages that were not received are suspended, and
-- cannot be resumed (ORC-26): those of correlation sets, and those of a convoy whose orchestration is not enlisted or
-- has another filter now. Returns the ids of the instances that have ended: not those whose claim was taken over, or
-- whose journal has another length. p_consumed are the numbers of the messages of all these instances. Raises 40001 if
-- a claim takes one of these messages at the same time.
-- Indexes: the primary keys, work_queue_instance, suspended_queue_instance, convoy_set_instances_instance.
-- Locks: the rows of the instances, in the order of the array; with convoys, advisory (7001, 0) shared; then see
-- int_remove_instances, then their suspended messages, then those in the queue, without waiting. claim_orchestrations
-- locks in another order.
CREATE OR REPLACE FUNCTION messagebox.end_orchestrations___HOST__(
    p_instance_ids uuid[], p_claim_ids uuid[], p_journal_lengths integer[], p_consumed bigint[],
    p_now timestamptz DEFAULT now()
) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    zombie_code CONSTANT text := '0xC0C01B4C';
    zombie_text CONSTANT text := 'The instance completed without consuming all of its messages.';
    ended uuid[];
    ended_services uuid[];
    priorities smallint[];
    convoys convoy_set_instances[];
    -- The messages that activate next instances: their instance, the subscription that has routed them, the next
    -- instance, and the subscription that activates it.
    before uuid[];
    routed_by bigint[];
    next uuid[];
    activations bigint[];
    released uuid[];
    counts xid8[];
    queued_count integer;
    locked_count integer;
    suspended queue_row[];
BEGIN
    WITH deleted AS (
        DELETE FROM orchestration_instances i
         USING unnest(p_instance_ids, p_claim_ids, p_journal_lengths) AS p (instance_id, claim_id, journal_length)
         WHERE i.instance_id = p.instance_id AND i.host_id = __HOST_ID__ AND i.claim_id = p.claim_id
           AND i.journal_length = p.journal_length
        RETURNING i.*
    )
    SELECT array_agg(instance_id), array_agg(service_id), array_agg(priority) INTO ended, ended_services, priorities
      FROM deleted;
    IF ended IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT array_agg(c) INTO convoys FROM convoy_set_instances c WHERE c.instance_id = ANY (ended);
    IF convoys IS NOT NULL THEN
        -- Before the rows of the convoys, as a publisher. The state of a subscription does not change until the commit.
        PERFORM lock_routing();
    END IF;
    PERFORM int_remove_instances(__HOST_ID__::smallint, ended, p_now);
    DELETE FROM orchestration_journal WHERE instance_id = ANY (ended);
    WITH done AS (
        DELETE FROM orchestration_messages
         WHERE instance_id = ANY (ended) AND (consumed_in IS NOT NULL OR seq = ANY (p_consumed))
        RETURNING message_id, counted_in
    )
    SELECT array_agg(message_id), array_agg(counted_in) INTO released, counts FROM done;
    IF released IS NOT NULL THEN
        PERFORM int_release(released, counts);
    END IF;
    -- Statements of their own, which see what others committed while the ones above waited for them.
    IF convoys IS NOT NULL THEN
        SELECT array_agg(u.instance_id), array_agg(u.subscription_id) INTO before, routed_by
          FROM (SELECT instance_id, subscription_id FROM orchestration_messages WHERE instance_id = ANY (ended)
                UNION
                SELECT instance_id, subscription_id FROM __HOST___q
                 WHERE instance_id = ANY (ended) AND task = 'join_instance'
                UNION
                SELECT instance_id, subscription_id FROM __HOST___q_suspended WHERE instance_id = ANY (ended)) u;
    END IF;
    IF before IS NOT NULL THEN
        WITH c AS MATERIALIZED (  -- one id for each convoy
            SELECT k.instance_id, gen_random_uuid() AS next,
                   int_find_activation(e.service_id, k.convoy_set_id) AS activation
              FROM unnest(convoys) k
              JOIN unnest(ended, ended_services) AS e (instance_id, service_id) ON e.instance_id = k.instance_id
        )
        SELECT array_agg(n.before), array_agg(n.routed_by), array_agg(c.next), array_agg(a.id)
          INTO before, routed_by, next, activations
          FROM unnest(before, routed_by) AS n (before, routed_by)
          JOIN c ON c.instance_id = n.before
          JOIN subscriptions a ON a.id = c.activation
          JOIN subscriptions s ON s.id = n.routed_by AND s.convoy_set_id = a.convoy_set_id AND s.filter = a.filter;
    END IF;
    -- What is suspended because the orchestration was stopped waits for its start, for the next instance.
    UPDATE __HOST___q_suspended q SET instance_id = n.next
      FROM unnest(before, routed_by, next) AS n (before, routed_by, next)
     WHERE q.instance_id = n.before AND q.subscription_id = n.routed_by;
    UPDATE __HOST___q_suspended
       SET resumable = false, cause = 'failure', error_code = zombie_code, error_description = zombie_text
     WHERE instance_id = ANY (ended);
    SELECT count(*) INTO queued_count FROM __HOST___q WHERE instance_id = ANY (ended) AND task = 'join_instance';
    IF queued_count > 0 THEN
        -- A claim that takes such a message now waits for the row of the instance, and this function must not wait
        -- for the claim: the caller repeats the transaction.
        SELECT count(*) INTO locked_count FROM (
               SELECT 1 FROM __HOST___q WHERE instance_id = ANY (ended) AND task = 'join_instance'
                  FOR UPDATE SKIP LOCKED) q;
        IF locked_count < queued_count THEN
            RAISE EXCEPTION 'a message of an instance that ends is being claimed' USING ERRCODE = '40001';
        END IF;
    END IF;
    IF before IS NOT NULL THEN
        -- Most of the messages are here: those of a stopped orchestration return to its suspended queue below.
        UPDATE orchestration_messages m SET instance_id = n.next, subscription_id = n.activation
          FROM unnest(before, routed_by, next, activations) AS n (before, routed_by, next, activation)
         WHERE m.instance_id = n.before AND m.subscription_id = n.routed_by;
        WITH queued AS (
            DELETE FROM __HOST___q q
             USING unnest(before, routed_by, next, activations) AS n (before, routed_by, next, activation)
             WHERE q.instance_id = n.before AND q.subscription_id = n.routed_by AND q.task = 'join_instance'
            RETURNING n.next, n.activation, q.seq, q.message_id, q.enqueued_at, q.counted_in
        )
        INSERT INTO orchestration_messages (instance_id, seq, message_id, subscription_id, enqueued_at, counted_in)
        SELECT q.next, q.seq, q.message_id, q.activation, q.enqueued_at, q.counted_in FROM queued q;
        INSERT INTO orchestration_instances (instance_id, host_id, service_id, priority, created_at, ready_seq)
        SELECT n.next, __HOST_ID__, a.service_id, a.priority, p_now, m.seq
          FROM (SELECT DISTINCT u.next, u.activation FROM unnest(next, activations) AS u (next, activation)) n
          JOIN subscriptions a ON a.id = n.activation AND a.state = 'started'
         CROSS JOIN LATERAL (SELECT seq FROM orchestration_messages WHERE instance_id = n.next ORDER BY seq LIMIT 1) m;
        INSERT INTO convoy_set_instances (convoy_set_id, digest, value_1, value_2, value_3, instance_id, created_at)
        SELECT DISTINCT c.convoy_set_id, c.digest, c.value_1, c.value_2, c.value_3, n.next, p_now
          FROM unnest(convoys) c
          JOIN unnest(before, next) AS n (before, next) ON n.before = c.instance_id;
    END IF;
    WITH stopped AS (
        DELETE FROM orchestration_messages m
         USING (SELECT DISTINCT u.next, u.activation FROM unnest(next, activations) AS u (next, activation)) n
          JOIN subscriptions a ON a.id = n.activation AND a.state = 'stopped'
         WHERE m.instance_id = n.next
        RETURNING m.*, a.service_id, a.priority, a.service_name
    ), delivered AS (
        DELETE FROM orchestration_messages WHERE instance_id = ANY (ended) RETURNING *
    ), queued AS (
        DELETE FROM __HOST___q WHERE instance_id = ANY (ended) AND task = 'join_instance' RETURNING *
    )
    SELECT array_agg(int_fail(
               ROW(u.seq, __HOST_ID__, u.message_id, u.subscription_id, 'orchestrations', u.service_id, u.instance_id,
                   u.priority, 'join_instance', 0, NULL, NULL, u.enqueued_at, u.counted_in, NULL, NULL, NULL, NULL,
                   NULL, NULL, NULL, NULL, NULL, NULL)::queue_row, p_now, u.cause, u.cause = 'port stopped',
               CASE u.cause WHEN 'port stopped' THEN 'PORT_STOPPED' ELSE zombie_code END, u.description))
      INTO suspended
      FROM (SELECT s.instance_id, s.seq, s.message_id, s.subscription_id, s.enqueued_at, s.counted_in, s.service_id,
                   s.priority, 'port stopped'::suspension_cause AS cause,
                   'The subscriber ' || s.service_name || ' is enlisted but stopped.' AS description
              FROM stopped s
            UNION ALL
            SELECT z.instance_id, z.seq, z.message_id, z.subscription_id, z.enqueued_at, z.counted_in, e.service_id,
                   e.priority, 'failure', zombie_text
              FROM (SELECT instance_id, seq, message_id, subscription_id, enqueued_at, counted_in FROM delivered
                    UNION ALL
                    SELECT instance_id, seq, message_id, subscription_id, enqueued_at, counted_in FROM queued) z
              JOIN unnest(ended, ended_services, priorities) AS e (instance_id, service_id, priority)
                   ON e.instance_id = z.instance_id) u;
    IF suspended IS NOT NULL THEN
        PERFORM int_suspend(suspended);
        PERFORM int_fault_instances(
            NULL, ARRAY(SELECT s FROM unnest(suspended) s WHERE s.cause = 'failure'), false,
            'has ended without receiving the request.');
    END IF;
    RETURN ended;
END $$;
