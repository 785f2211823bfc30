-- Return the bytes on disk by content: messages, queues, reference counts, subscriptions, intake, orchestrations,
-- lookups, tracking (what was received, answered and changed) and configuration. With their indexes.
CREATE OR REPLACE FUNCTION messagebox.measure_tables() RETURNS TABLE (content text, bytes bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET lock_timeout = '200ms' AS $$
    SELECT CASE
               WHEN t.name IN ('spool', 'parts', 'fragments', 'message_properties', 'message_predicates')
                   THEN 'messages'
               WHEN t.name IN ('work_queue', 'scheduled_queue', 'suspended_queue', 'leases', 'operation_instances',
                               'sink_batches', 'sink_attempts') THEN 'queues'
               WHEN t.name LIKE '%ref_count_log%' OR t.name LIKE '%zero_sum' THEN 'reference counts'
               WHEN t.name IN ('subscriptions', 'predicate_groups', 'predicates', 'convoy_sets', 'convoy_set_instances',
                               'correlation_types', 'routing_version', 'program_subscriptions') THEN 'subscriptions'
               WHEN t.name IN ('inbox', 'inbox_fragments', 'file_claims', 'splits', 'receive_attempts', 'streams',
                               'stream_units') THEN 'intake'
               WHEN t.name LIKE 'orchestration\_%' THEN 'orchestrations'
               WHEN t.name IN ('lookup_contents', 'lookup_entries') THEN 'lookups'
               WHEN t.name IN ('receipts', 'receipt_clock', 'stored_responses', 'audit', 'operations', 'job_runs')
                   THEN 'tracking'
               ELSE 'configuration'
           END,
           sum(pg_total_relation_size(t.oid))::bigint
      FROM (SELECT c.oid, coalesce(p.relname, c.relname) AS name
              FROM pg_class c
              LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
              LEFT JOIN pg_class p ON p.oid = i.inhparent
             WHERE c.relnamespace IN ('messagebox'::regnamespace, 'management'::regnamespace) AND c.relkind = 'r') t
     GROUP BY 1;
$$;
