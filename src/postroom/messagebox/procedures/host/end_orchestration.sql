-- The last persistence point of a claimed instance: it has ended. Its subscriptions, its convoy, its journal and its
-- row are deleted, and the messages that it has received are released. The messages that it has not received are
-- suspended, and cannot be resumed (ORC-26). Returns their number, or -1 if the claim was taken over or the journal has
-- another length.
-- Indexes: the primary keys, work_queue_instance. Locks: the row of the instance, then see int_remove_instance.
CREATE OR REPLACE FUNCTION messagebox.end_orchestration___HOST__(
    p_instance_id uuid, p_claim_id uuid, p_journal_length integer, p_consumed bigint[], p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    ended orchestration_instances;
    released uuid[];
    counts xid8[];
    zombies integer;
BEGIN
    DELETE FROM orchestration_instances
     WHERE instance_id = p_instance_id AND host_id = __HOST_ID__ AND claim_id = p_claim_id
       AND journal_length = p_journal_length
    RETURNING * INTO ended;
    IF NOT FOUND THEN
        RETURN -1;
    END IF;
    PERFORM int_remove_instance(__HOST_ID__::smallint, p_instance_id, p_now);
    DELETE FROM orchestration_journal WHERE instance_id = p_instance_id;
    WITH done AS (
        DELETE FROM orchestration_messages
         WHERE instance_id = p_instance_id AND (consumed_in IS NOT NULL OR seq = ANY (p_consumed))
        RETURNING message_id, counted_in
    )
    SELECT array_agg(message_id), array_agg(counted_in) INTO released, counts FROM done;
    IF released IS NOT NULL THEN
        PERFORM int_release(released, counts);
    END IF;
    -- A statement of its own, which sees what publishers committed while int_remove_instance waited for them.
    WITH delivered AS (
        DELETE FROM orchestration_messages WHERE instance_id = p_instance_id RETURNING *
    ), queued AS (
        DELETE FROM __HOST___q WHERE instance_id = p_instance_id AND task = 4 RETURNING *
    ), suspended AS (
        INSERT INTO suspended_queue (seq, host_id, message_id, subscription_id, service_class, service_id, instance_id,
                                     priority, task, enqueued_at, counted_in, suspended_at, resumable, cause, error_code,
                                     error_description)
        SELECT seq, __HOST_ID__, message_id, subscription_id, 1, ended.service_id, p_instance_id, ended.priority, 4,
               enqueued_at, counted_in, p_now, false, 2, '0xC0C01B4C',
               'The instance completed without consuming all of its messages.'
          FROM (SELECT seq, message_id, subscription_id, enqueued_at, counted_in FROM delivered
                UNION ALL SELECT seq, message_id, subscription_id, enqueued_at, counted_in FROM queued) unconsumed
        RETURNING 1
    )
    SELECT count(*) INTO zombies FROM suspended;
    RETURN zombies;
END $$;
