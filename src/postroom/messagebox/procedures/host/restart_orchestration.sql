-- A persistence point of a claimed instance that continues with a fresh journal: its journal, its subscriptions and its
-- references to received messages are deleted, except the first message, which starts it again. Messages that it has
-- not received stay, including those that a publish routes to its subscriptions at the same time. Returns false, and
-- changes nothing, if the claim was taken over or the journal has another length.
-- Indexes: the primary keys, subscriptions_instance. Locks: the row of the instance, its subscriptions.
CREATE OR REPLACE FUNCTION messagebox.restart_orchestration___HOST__(
    p_instance_id uuid, p_claim_id uuid, p_journal_length integer, p_consumed bigint[], p_carried json,
    p_now timestamptz DEFAULT now()
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    first_seq bigint;
    released uuid[];
    counts xid8[];
BEGIN
    UPDATE orchestration_instances
       SET journal_length = p_journal_length + 1, journals = journals + 1, carried = p_carried, wake_at = NULL,
           process_deaths = 0
     WHERE instance_id = p_instance_id AND host_id = __HOST_ID__ AND claim_id = p_claim_id
       AND journal_length = p_journal_length;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM orchestration_journal WHERE instance_id = p_instance_id;
    PERFORM 1 FROM subscriptions
      WHERE instance_id = p_instance_id AND host_id = __HOST_ID__ AND removed_at IS NULL ORDER BY id FOR UPDATE;
    UPDATE subscriptions SET removed_at = p_now
     WHERE instance_id = p_instance_id AND host_id = __HOST_ID__ AND removed_at IS NULL;
    SELECT min(seq) INTO first_seq FROM orchestration_messages
     WHERE instance_id = p_instance_id AND (consumed_in IS NOT NULL OR seq = ANY (p_consumed));
    UPDATE orchestration_messages SET consumed_in = NULL WHERE instance_id = p_instance_id AND seq = first_seq;
    WITH done AS (
        DELETE FROM orchestration_messages
         WHERE instance_id = p_instance_id AND seq <> first_seq AND (consumed_in IS NOT NULL OR seq = ANY (p_consumed))
        RETURNING message_id, counted_in
    )
    SELECT array_agg(message_id), array_agg(counted_in) INTO released, counts FROM done;
    IF released IS NOT NULL THEN
        PERFORM int_release(released, counts);
    END IF;
    RETURN true;
END $$;
