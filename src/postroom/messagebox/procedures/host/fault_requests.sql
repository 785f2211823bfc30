-- Give a fault to the callers of requests that a claimed instance has received and not answered, because it ends, or
-- starts a fresh journal. p_what says which, after the name of the orchestration. Changes nothing if the claim was
-- taken over or the journal has another length. Called in the transaction that stores the persistence point, before it
-- does.
-- Indexes: the primary keys of orchestration_instances, orchestration_messages and services. Locks: see
-- int_fault_requests. The caller has locked the instance (lock_orchestrations).
CREATE OR REPLACE FUNCTION messagebox.fault_requests___HOST__(
    p_instance_id uuid, p_claim_id uuid, p_journal_length integer, p_message_ids uuid[], p_what text
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    faulted record;
BEGIN
    SELECT array_agg(i.instance_id) AS instance_ids, array_agg(i.service_id) AS service_ids,
           array_agg(m.message_id) AS message_ids INTO faulted
      FROM orchestration_instances i
      JOIN services v ON v.id = i.service_id AND v.two_way
      JOIN orchestration_messages m ON m.instance_id = i.instance_id AND m.message_id = ANY (p_message_ids)
       AND NOT m.answered
     WHERE i.instance_id = p_instance_id AND i.host_id = __HOST_ID__ AND i.claim_id = p_claim_id
       AND i.journal_length = p_journal_length;
    IF faulted.message_ids IS NOT NULL THEN
        PERFORM int_fault_requests(
            faulted.instance_ids, faulted.service_ids, faulted.message_ids, false, p_what);
    END IF;
END $$;
