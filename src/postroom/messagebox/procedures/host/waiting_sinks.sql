-- Return the sinks of this host that have work: waiting messages or an unfinished batch. Due rows are moved out of the
-- scheduled queue first, because a sink may run without a host.
-- Index: work_queue_sinks, from one port to the next.
CREATE OR REPLACE FUNCTION messagebox.waiting_sinks___HOST__(p_now timestamptz DEFAULT now()) RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off SET enable_sort = off AS $$
BEGIN
    PERFORM release_due___HOST__(10000, p_now);
    RETURN QUERY
    WITH RECURSIVE ports AS (
        (SELECT q.service_id FROM __HOST___q q WHERE q.claim_id IS NULL AND q.service_class = 'spark_sinks'
          ORDER BY q.service_id LIMIT 1)
        UNION ALL
        SELECT (SELECT q.service_id FROM __HOST___q q
                 WHERE q.claim_id IS NULL AND q.service_class = 'spark_sinks' AND q.service_id > p.service_id
                 ORDER BY q.service_id LIMIT 1)
          FROM ports p WHERE p.service_id IS NOT NULL
    )
    SELECT p.service_id FROM ports p WHERE p.service_id IS NOT NULL
    UNION
    SELECT b.port_id FROM sink_batches b WHERE b.host_id = __HOST_ID__;
END $$;
