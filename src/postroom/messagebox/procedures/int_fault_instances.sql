-- Give a fault to the callers of all requests that instances of orchestrations have and have not answered: those that
-- they have received, those that wait for them, and those of p_rows, which were taken out of a queue. Only of
-- orchestrations whose code can answer. With p_may_answer they may answer when they are resumed. p_what says what has
-- happened, after the name of the orchestration.
-- Indexes: the primary keys of orchestration_instances, orchestration_messages and services. Locks: see
-- int_fault_requests. The caller has locked the instances.
CREATE OR REPLACE FUNCTION messagebox.int_fault_instances(
    p_instance_ids uuid[], p_rows messagebox.queue_row[], p_may_answer boolean, p_what text
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    faulted record;
BEGIN
    SELECT array_agg(r.instance_id) AS instance_ids, array_agg(r.service_id) AS service_ids,
           array_agg(r.message_id) AS message_ids INTO faulted
      FROM (SELECT m.instance_id, i.service_id, m.message_id
              FROM orchestration_instances i
              JOIN services v ON v.id = i.service_id AND v.two_way
              JOIN orchestration_messages m ON m.instance_id = i.instance_id AND NOT m.answered
             WHERE i.instance_id = ANY (p_instance_ids)
            UNION ALL
            SELECT q.instance_id, q.service_id, q.message_id
              FROM unnest(p_rows) q JOIN services v ON v.id = q.service_id AND v.two_way
             WHERE q.service_class = 'orchestrations') r;
    IF faulted.message_ids IS NOT NULL THEN
        PERFORM int_fault_requests(
            faulted.instance_ids, faulted.service_ids, faulted.message_ids, p_may_answer, p_what);
    END IF;
END $$;
