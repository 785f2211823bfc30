-- Persistence points of claimed instances: append to their journals, and mark the messages that they have received.
-- Returns the ids of the instances that were stored: not those whose claim was taken over, or whose journal has another
-- length. With p_release an instance is not claimed any more; if a message came in the meantime, it is still ready.
-- p_turns is null if the journal does not grow. The arrays of consumed messages have the instance, the number of the
-- message, and the length of the journal with the entry that received it. An instance that an operator wants to suspend
-- or terminate is not claimed any more either, although it has more to do (INS-05): those are "interrupted".
-- p_suspensions has the reasons of instances that suspend themselves, which are released. The reason stays if an
-- operator wants to suspend the instance, too: whoever resumes it has to know both. The callers of its requests get a
-- fault.
-- Indexes: the primary keys, operation_instances_pending. Locks: the rows of the instances, in the order of the array,
-- then see int_fault_requests.
CREATE OR REPLACE FUNCTION messagebox.persist_orchestrations___HOST__(
    p_instance_ids uuid[], p_claim_ids uuid[], p_journal_lengths integer[], p_turns text[], p_wake_at timestamptz[],
    p_release boolean[], p_suspensions text[], p_consumed_by uuid[], p_consumed bigint[], p_consumed_in integer[],
    p_now timestamptz DEFAULT now(), OUT stored uuid[], OUT interrupted uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    suspended record;
BEGIN
    WITH persisted AS (
        UPDATE orchestration_instances i
           SET journal_length = p.journal_length + CASE WHEN p.turns IS NULL THEN 0 ELSE 1 END,
               wake_at = p.wake_at,
               process_deaths = 0,
               claim_id = CASE WHEN NOT p.release AND o.instance_id IS NULL THEN p.claim_id END,
               claimed_by = CASE WHEN NOT p.release AND o.instance_id IS NULL THEN i.claimed_by END,
               ready_seq = CASE WHEN p.release OR o.instance_id IS NULL THEN i.ready_seq
                                ELSE coalesce(i.ready_seq, nextval('messagebox.queue_sequence')) END,
               suspended_at = CASE WHEN p.suspension IS NOT NULL THEN p_now END,
               error_code = CASE WHEN p.suspension IS NOT NULL THEN 'SUSPENDED_ITSELF' END,
               error_description = p.suspension || CASE WHEN o.instance_id IS NULL THEN ''
                                                        ELSE chr(10) || 'An operator has also changed it.' END
          FROM unnest(p_instance_ids, p_claim_ids, p_journal_lengths, p_turns, p_wake_at, p_release, p_suspensions)
               AS p (instance_id, claim_id, journal_length, turns, wake_at, release, suspension)
          LEFT JOIN operation_instances o ON o.instance_id = p.instance_id AND o.pending
         WHERE i.instance_id = p.instance_id AND i.host_id = __HOST_ID__ AND i.claim_id = p.claim_id
           AND i.journal_length = p.journal_length
        RETURNING i.instance_id, i.journal_length, p.turns,
                  NOT p.release AND o.instance_id IS NOT NULL AS is_interrupted
    ), journal AS (
        INSERT INTO orchestration_journal (instance_id, number, turns)
        SELECT s.instance_id, s.journal_length, s.turns::json FROM persisted s WHERE s.turns IS NOT NULL
    )
    SELECT coalesce(array_agg(s.instance_id), '{}'),
           coalesce(array_agg(s.instance_id) FILTER (WHERE s.is_interrupted), '{}')
      INTO stored, interrupted
      FROM persisted s;
    UPDATE orchestration_messages m SET consumed_in = c.consumed_in
      FROM unnest(p_consumed_by, p_consumed, p_consumed_in) AS c (instance_id, seq, consumed_in)
     WHERE m.instance_id = c.instance_id AND m.seq = c.seq AND c.instance_id = ANY (stored);
    FOR suspended IN
        SELECT p.instance_id, p.suspension FROM unnest(p_instance_ids, p_suspensions) AS p (instance_id, suspension)
         WHERE p.suspension IS NOT NULL AND p.instance_id = ANY (stored)
    LOOP
        PERFORM int_fault_instances(
            ARRAY[suspended.instance_id], NULL, true, 'has suspended itself: ' || suspended.suspension);
    END LOOP;
END $$;
