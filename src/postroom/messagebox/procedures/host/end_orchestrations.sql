-- The last persistence points of claimed instances: they have ended. Their subscriptions, convoys, journals and rows
-- are deleted, and the messages that they have received are released. The messages that they have not received are
-- suspended, and cannot be resumed (ORC-26), nor can those that are suspended because the orchestration was stopped: a
-- resume would start the ended instance again. Returns the ids of the instances that have ended: not those whose claim
-- was taken over, or whose journal has another length. p_consumed are the numbers of the messages of all these
-- instances. Raises 40001 if a claim takes one of these messages at the same time.
-- Indexes: the primary keys, work_queue_instance, suspended_queue_instance. Locks: the rows of the instances, in the
-- order of the array, then see int_remove_instances, then their suspended messages, then those in the queue, without
-- waiting. claim_orchestrations locks in another order.
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
    services uuid[];
    priorities smallint[];
    released uuid[];
    counts xid8[];
    queued_count integer;
    locked_count integer;
    zombies queue_row[];
BEGIN
    WITH deleted AS (
        DELETE FROM orchestration_instances i
         USING unnest(p_instance_ids, p_claim_ids, p_journal_lengths) AS p (instance_id, claim_id, journal_length)
         WHERE i.instance_id = p.instance_id AND i.host_id = __HOST_ID__ AND i.claim_id = p.claim_id
           AND i.journal_length = p.journal_length
        RETURNING i.*
    )
    SELECT array_agg(instance_id), array_agg(service_id), array_agg(priority) INTO ended, services, priorities
      FROM deleted;
    IF ended IS NULL THEN
        RETURN '{}';
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
    UPDATE __HOST___q_suspended
       SET resumable = false, cause = 'failure', error_code = zombie_code, error_description = zombie_text
     WHERE instance_id = ANY (ended);
    -- Statements of their own, which see what others committed while the ones above waited for them.
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
    )
    SELECT array_agg(int_fail(
               ROW(u.seq, __HOST_ID__, u.message_id, u.subscription_id, 'orchestrations', e.service_id, u.instance_id,
                   e.priority, 'join_instance', 0, NULL, NULL, u.enqueued_at, u.counted_in, NULL, NULL, NULL, NULL,
                   NULL, NULL, NULL, NULL, NULL, NULL)::queue_row, p_now, 'failure', false, zombie_code, zombie_text))
      INTO zombies
      FROM (SELECT instance_id, seq, message_id, subscription_id, enqueued_at, counted_in FROM delivered
            UNION ALL
            SELECT instance_id, seq, message_id, subscription_id, enqueued_at, counted_in FROM queued) u
      JOIN unnest(ended, services, priorities) AS e (instance_id, service_id, priority) USING (instance_id);
    IF zombies IS NOT NULL THEN
        PERFORM int_suspend(zombies);
    END IF;
    RETURN ended;
END $$;
