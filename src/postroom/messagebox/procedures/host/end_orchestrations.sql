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
    before uuid[];                                       -- the instances whose convoy has an activation subscription,
    next uuid[];                                         -- the instance that comes after each of them,
    activations bigint[];                                -- and the subscription that activates it
    activated uuid[];
    activated_by_delivered uuid[];
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
    IF convoys IS NOT NULL
       AND (EXISTS (SELECT 1 FROM orchestration_messages WHERE instance_id = ANY (ended))
            OR EXISTS (SELECT 1 FROM __HOST___q WHERE instance_id = ANY (ended) AND task = 'join_instance')
            OR EXISTS (SELECT 1 FROM __HOST___q_suspended WHERE instance_id = ANY (ended))) THEN
        SELECT array_agg(c.instance_id), array_agg(gen_random_uuid()), array_agg(a.id) INTO before, next, activations
          FROM unnest(convoys) c
          JOIN unnest(ended, ended_services) AS e (instance_id, service_id) ON e.instance_id = c.instance_id
         CROSS JOIN LATERAL int_find_activation(e.service_id, c.convoy_set_id) AS a (id)
         WHERE a.id IS NOT NULL;
    END IF;
    -- What is suspended because the orchestration was stopped waits for its start, for the next instance.
    WITH moved AS (
        UPDATE __HOST___q_suspended q SET instance_id = n.next
          FROM unnest(before, next, activations) AS n (before, next, activation)
          JOIN subscriptions a ON a.id = n.activation
         WHERE q.instance_id = n.before
           AND EXISTS (SELECT 1 FROM subscriptions s
                        WHERE s.id = q.subscription_id AND s.convoy_set_id = a.convoy_set_id AND s.filter = a.filter)
        RETURNING q.instance_id
    )
    SELECT array_agg(DISTINCT instance_id) INTO activated FROM moved;
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
    WITH delivered AS (
        DELETE FROM orchestration_messages WHERE instance_id = ANY (ended) RETURNING *
    ), queued AS (
        DELETE FROM __HOST___q WHERE instance_id = ANY (ended) AND task = 'join_instance' RETURNING *
    ), unreceived AS MATERIALIZED (
        SELECT u.seq, u.message_id, u.enqueued_at, u.counted_in,
               coalesce(n.next, u.instance_id) AS instance_id,
               coalesce(n.activation, u.subscription_id) AS subscription_id,
               coalesce(n.service_id, e.service_id) AS service_id,
               coalesce(n.priority, e.priority) AS priority,
               n.state, n.service_name
          FROM (SELECT instance_id, seq, message_id, subscription_id, enqueued_at, counted_in FROM delivered
                UNION ALL
                SELECT instance_id, seq, message_id, subscription_id, enqueued_at, counted_in FROM queued) u
          JOIN unnest(ended, ended_services, priorities) AS e (instance_id, service_id, priority)
               ON e.instance_id = u.instance_id
          LEFT JOIN LATERAL (
               SELECT p.next, p.activation, a.service_id, a.priority, a.state, a.service_name
                 FROM unnest(before, next, activations) AS p (before, next, activation)
                 JOIN subscriptions a ON a.id = p.activation
                WHERE p.before = u.instance_id
                  AND EXISTS (SELECT 1 FROM subscriptions s
                               WHERE s.id = u.subscription_id AND s.convoy_set_id = a.convoy_set_id
                                 AND s.filter = a.filter)) n ON true
    ), joined AS (
        INSERT INTO orchestration_messages (instance_id, seq, message_id, subscription_id, enqueued_at, counted_in)
        SELECT u.instance_id, u.seq, u.message_id, u.subscription_id, u.enqueued_at, u.counted_in
          FROM unreceived u WHERE u.state = 'started'
    ), created AS (
        INSERT INTO orchestration_instances (instance_id, host_id, service_id, priority, created_at, ready_seq)
        SELECT u.instance_id, __HOST_ID__, u.service_id, u.priority, p_now, min(u.seq)
          FROM unreceived u WHERE u.state = 'started' GROUP BY u.instance_id, u.service_id, u.priority
    )
    SELECT array_agg(DISTINCT u.instance_id) FILTER (WHERE u.state IS NOT NULL),
           array_agg(int_fail(
               ROW(u.seq, __HOST_ID__, u.message_id, u.subscription_id, 'orchestrations', u.service_id, u.instance_id,
                   u.priority, 'join_instance', 0, NULL, NULL, u.enqueued_at, u.counted_in, NULL, NULL, NULL, NULL,
                   NULL, NULL, NULL, NULL, NULL, NULL)::queue_row, p_now,
               CASE WHEN u.state IS NULL THEN 'failure' ELSE 'port stopped' END::suspension_cause,
               u.state IS NOT NULL,
               CASE WHEN u.state IS NULL THEN zombie_code ELSE 'PORT_STOPPED' END,
               CASE WHEN u.state IS NULL THEN zombie_text
                    ELSE 'The subscriber ' || u.service_name || ' is enlisted but stopped.' END))
               FILTER (WHERE u.state IS DISTINCT FROM 'started')
      INTO activated_by_delivered, suspended
      FROM unreceived u;
    activated := activated || activated_by_delivered;
    IF suspended IS NOT NULL THEN
        PERFORM int_suspend(suspended);
    END IF;
    IF activated IS NOT NULL THEN
        INSERT INTO convoy_set_instances (convoy_set_id, digest, value_1, value_2, value_3, instance_id, created_at)
        SELECT c.convoy_set_id, c.digest, c.value_1, c.value_2, c.value_3, n.next, p_now
          FROM unnest(convoys) c
          JOIN unnest(before, next) AS n (before, next) ON n.before = c.instance_id
         WHERE n.next = ANY (activated);
    END IF;
    RETURN ended;
END $$;
