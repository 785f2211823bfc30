-- Complete an instance of this host: remove its subscriptions and its convoy (SUB-05, ORC-25). Returns the numbers of
-- the messages that were routed to it and not consumed. They stay in the queues, and the caller decides what happens to
-- them (ORC-26). Complete the consumed messages first, in the same transaction.
-- Indexes: work_queue_instance, scheduled_queue_instance, suspended_queue_instance. Locks: see int_remove_instances.
CREATE OR REPLACE FUNCTION messagebox.complete_instance___HOST__(p_instance_id uuid, p_now timestamptz DEFAULT now())
RETURNS TABLE (seq bigint, message_id uuid, subscription_id bigint, claim_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
BEGIN
    PERFORM int_remove_instances(__HOST_ID__::smallint, ARRAY[p_instance_id], p_now);
    -- A statement of its own, which sees what publishers committed while the one above waited for them.
    RETURN QUERY
    SELECT q.seq, q.message_id, q.subscription_id, q.claim_id FROM __HOST___q q
     WHERE q.instance_id = p_instance_id AND q.task = 'join_instance'
    UNION ALL
    SELECT q.seq, q.message_id, q.subscription_id, NULL FROM __HOST___q_scheduled q WHERE q.instance_id = p_instance_id
    UNION ALL
    SELECT q.seq, q.message_id, q.subscription_id, NULL FROM __HOST___q_suspended q WHERE q.instance_id = p_instance_id
     ORDER BY 1;
END $$;
