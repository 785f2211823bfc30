-- Release orchestration instances whose host instance died, or ran out of memory, while it had them. One that this has
-- happened to five times is suspended: it may be the cause. In the last three of these no other suspect was claimed, so
-- random deaths hardly ever meet the same instance. The callers of its requests get a fault. Returns their number. The
-- caller has locked them.
-- Index: the primary key. Locks: the rows of the instances, then see int_fault_requests.
CREATE OR REPLACE FUNCTION messagebox.int_release_failed(p_instance_ids uuid[], p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    released bigint;
BEGIN
    UPDATE orchestration_instances o
       SET claim_id = NULL, claimed_by = NULL, ready_seq = coalesce(o.ready_seq, nextval('messagebox.queue_sequence')),
           process_deaths = o.process_deaths + 1,
           suspended_at = CASE WHEN o.process_deaths >= 4 THEN p_now END,
           error_code = CASE WHEN o.process_deaths >= 4 THEN 'ORCHESTRATION' END,
           error_description = CASE WHEN o.process_deaths >= 4 THEN
               'The host process that worked on the instance died, did not respond, or ran out of memory, five times.'
               || chr(10)
               || 'A library that the orchestration calls may crash, or block the whole process. Or the instance needs '
               || 'more memory than there is.' || chr(10)
               || 'Read the log of the host. Correct the code, or do long work in a step; then resume the instance.'
           END
     WHERE o.instance_id = ANY (p_instance_ids);
    GET DIAGNOSTICS released = ROW_COUNT;
    PERFORM int_fault_instances(
        ARRAY(SELECT o.instance_id FROM orchestration_instances o
               WHERE o.instance_id = ANY (p_instance_ids) AND o.suspended_at IS NOT NULL), NULL, true,
        'was suspended: host processes that worked on it ended five times.');
    RETURN released;
END $$;
