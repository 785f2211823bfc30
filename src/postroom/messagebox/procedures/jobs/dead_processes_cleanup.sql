-- MessageBox_DeadProcesses_Cleanup: a host instance whose session lock is missing, and was already missing p_grace ago,
-- is dead. Its claims are released, and so are claims that it made while it was declared dead. If any were released,
-- all hosts are woken. Returns the number of released rows. The requests whose callers it held stop waiting, and their
-- responses are suspended: no process can deliver them (RR-06). A request with an idempotency key keeps waiting until
-- its time is over, because a repeated request can take it over. An orchestration instance that five host instances
-- had when they died is suspended (int_release_failed). Messages of a sink's batch stay in the batch: the next process
-- that serves the sink writes the same batch. Claims of programs are released when their lease expires: the messages of
-- the claim get one more attempt, and those that this has happened to max_attempts times are suspended.
-- Locks: tries the advisory lock (7002, id) of each instance for a moment; orchestration instances in the order of
-- their ids, as those that store them do. Indexes: orchestration_instances_claimed; work_queue_claimed, from one claim
-- to the next, so that the rows of a large batch are not read.
CREATE OR REPLACE FUNCTION messagebox.dead_processes_cleanup(
    p_grace interval DEFAULT '1 second', p_now timestamptz DEFAULT clock_timestamp()
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE
    instance record;
    -- Just after a server start no instance had the time to reconnect: wait longer.
    grace interval := CASE WHEN p_now - pg_postmaster_start_time() BETWEEN '0' AND '15 seconds'
                           THEN greatest(p_grace, '10 seconds') ELSE p_grace END;
    released bigint := 0;
    n bigint;
    lost queue_row[];
    expired_claims uuid[];
BEGIN
    FOR instance IN SELECT * FROM host_instances ORDER BY id LOOP
        IF pg_try_advisory_xact_lock(7002, instance.id) THEN
            -- A time in the future is from before the clock was set back.
            IF instance.dead_since IS NULL OR instance.dead_since > p_now THEN
                UPDATE host_instances SET dead_since = p_now WHERE id = instance.id;
            ELSIF instance.dead_since <= p_now - grace THEN
                UPDATE work_queue SET claim_id = NULL, claimed_by = NULL
                 WHERE claim_id IS NOT NULL AND claimed_by = instance.id;
                GET DIAGNOSTICS n = ROW_COUNT;
                released := released + n;
                DELETE FROM host_instances WHERE id = instance.id;
            END IF;
        ELSIF instance.dead_since IS NOT NULL THEN
            UPDATE host_instances SET dead_since = NULL WHERE id = instance.id;
        END IF;
    END LOOP;
    -- A lease that would be valid for longer than its length is from before the clock was set back.
    WITH expired AS (
        DELETE FROM leases WHERE expires_at NOT BETWEEN p_now AND p_now + length RETURNING claim_id
    )
    SELECT array_agg(e.claim_id) INTO expired_claims FROM expired e;
    UPDATE work_queue q
       SET claim_id = NULL, attempt = q.attempt + 1,
           expired_leases = (SELECT coalesce(q.expired_leases, 0) + 1 FROM program_subscriptions u
                              WHERE u.service_id = q.service_id AND u.max_attempts IS NOT NULL)
     WHERE q.claim_id = ANY (expired_claims);
    GET DIAGNOSTICS n = ROW_COUNT;
    released := released + n;
    IF n > 0 THEN
        WITH done AS (
            DELETE FROM work_queue q
             USING program_subscriptions u
             WHERE u.service_id = q.service_id AND q.service_class = 'programs' AND q.expired_leases >= 2
               AND q.expired_leases >= u.max_attempts AND q.claim_id IS NULL
            RETURNING int_row(q) AS row, q.expired_leases AS times
        )
        SELECT array_agg(int_fail(d.row, p_now, 'failure', true, 'PROGRAM', format(
                   'A program received the message, and did not end it before its lease expired, %s times.', d.times)
                   || chr(10) || 'The message may be what ends the program. Or the work takes longer than the lease.'
                   || chr(10) || 'Read the log of the program. Correct it, and resume the instance. Or terminate it.'))
          INTO lost FROM done d;
        PERFORM int_suspend(lost);
    END IF;
    -- An instance is registered before it claims: an instance without a row is not working on any message.
    UPDATE work_queue q SET claim_id = NULL, claimed_by = NULL
     WHERE q.claim_id = ANY (ARRAY(
           WITH RECURSIVE claims AS (
               (SELECT w.claim_id FROM work_queue w WHERE w.claim_id IS NOT NULL ORDER BY w.claim_id LIMIT 1)
               UNION ALL
               SELECT (SELECT w.claim_id FROM work_queue w WHERE w.claim_id > c.claim_id ORDER BY w.claim_id LIMIT 1)
                 FROM claims c WHERE c.claim_id IS NOT NULL)
           SELECT c.claim_id FROM claims c
            WHERE c.claim_id IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM sink_batches b WHERE b.batch_id = c.claim_id)
              AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.claim_id = c.claim_id)))
       AND NOT EXISTS (SELECT 1 FROM host_instances i WHERE i.id = q.claimed_by);
    GET DIAGNOSTICS n = ROW_COUNT;
    released := released + n;
    released := released + int_release_failed(ARRAY(
           SELECT c.instance_id FROM orchestration_instances c
            WHERE c.claim_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM host_instances i WHERE i.id = c.claimed_by)
            ORDER BY c.instance_id FOR UPDATE), p_now);
    IF released > 0 THEN
        PERFORM pg_notify('postroom_' || lower(h.name), '') FROM hosts h;
    END IF;
    -- A publish that has found the subscription already adds its row later: the next run suspends that one.
    UPDATE subscriptions s SET removed_at = p_now
     WHERE s.for_host_instance IS NOT NULL AND s.removed_at IS NULL
       AND (s.kept_until IS NULL OR s.kept_until <= p_now)
       AND NOT EXISTS (SELECT 1 FROM host_instances i WHERE i.id = s.for_host_instance);
    WITH done AS (
        DELETE FROM work_queue q
         WHERE q.for_host_instance IS NOT NULL AND q.claim_id IS NULL
           AND NOT EXISTS (SELECT 1 FROM host_instances i WHERE i.id = q.for_host_instance)
           AND NOT EXISTS (SELECT 1 FROM subscriptions s
                            WHERE s.instance_id = q.instance_id AND s.kept_until IS NOT NULL AND s.removed_at IS NULL)
        RETURNING int_row(q) AS row
    )
    SELECT array_agg(int_fail(d.row, p_now, 'failure', false, 'CORRELATION',
                              'The response could not be correlated to an existing request.' || chr(10)
                              || 'The host process that held the caller has ended.'))
      INTO lost FROM done d;
    PERFORM int_suspend(lost);
    RETURN released;
END $$;
