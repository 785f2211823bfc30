-- Like dequeue_messages_<host>, for services whose instances have many messages. Messages of one instance (task 4) are
-- claimed in order and by one claim at a time. A row waits while another claim has a row of its instance, and while an
-- earlier row waits for a retry or is suspended. A second check releases rows whose predecessor was claimed or
-- suspended concurrently.
-- Indexes: as dequeue_messages_<host>; work_queue_instance, scheduled_queue_instance, suspended_queue_instance.
-- Locks: the claimed rows, for the moment of the claim.
CREATE OR REPLACE FUNCTION messagebox.dequeue_in_order___HOST__(
    p_claim_id uuid, p_host_instance integer, p_service_class smallint, p_limit integer,
    p_now timestamptz DEFAULT now(), p_excluded uuid[] DEFAULT '{}'
) RETURNS TABLE (
    routing_version bigint, seq bigint, message_id uuid, service bytea, instance_id uuid, task smallint,
    attempt integer, context text, part_count integer, body_part_id uuid, body_part_name text, content_type text,
    charset text, body bytea, originator_sid text, originator_pid text, group_name text,
    primary_attempts integer, properties text, age double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM release_due___HOST__(10 * p_limit, p_now);
    UPDATE __HOST___q q SET claim_id = p_claim_id, claimed_by = p_host_instance
     WHERE q.ctid = ANY (ARRAY(
           SELECT w.ctid FROM __HOST___q w
            WHERE w.claim_id IS NULL AND w.task <> 6 AND w.service_class = p_service_class
              AND (w.service_id = ANY (p_excluded)) IS NOT TRUE
              AND (w.for_host_instance = p_host_instance) IS NOT FALSE
              AND (w.task <> 4 OR NOT EXISTS (
                      SELECT 1 FROM __HOST___q o
                       WHERE o.instance_id = w.instance_id AND o.task = 4 AND o.claim_id IS NOT NULL
                      UNION ALL
                      SELECT 1 FROM __HOST___q_scheduled o WHERE o.instance_id = w.instance_id AND o.seq < w.seq
                      UNION ALL
                      SELECT 1 FROM __HOST___q_suspended o WHERE o.instance_id = w.instance_id AND o.seq < w.seq))
            ORDER BY w.priority, w.seq LIMIT p_limit FOR UPDATE SKIP LOCKED));
    UPDATE __HOST___q q SET claim_id = NULL, claimed_by = NULL
     WHERE q.claim_id = p_claim_id AND q.task = 4 AND EXISTS (
           SELECT 1 FROM __HOST___q o
            WHERE o.instance_id = q.instance_id AND o.task = 4 AND o.claim_id IS DISTINCT FROM p_claim_id
              AND (o.claim_id IS NOT NULL OR (o.priority, o.seq) < (q.priority, q.seq))
           UNION ALL
           SELECT 1 FROM __HOST___q_scheduled o WHERE o.instance_id = q.instance_id AND o.seq < q.seq
           UNION ALL
           SELECT 1 FROM __HOST___q_suspended o WHERE o.instance_id = q.instance_id AND o.seq < q.seq);
    RETURN QUERY
    SELECT v.version, c.seq, c.message_id, uuid_send(c.service_id), c.instance_id, c.task, c.attempt, s.context::text,
           cardinality(s.part_ids), s.body_part_id, s.body_part_name, p.content_type, p.charset, p.body,
           coalesce(s.originator_sid, s.published_by), coalesce(s.originator_pid, 'Guest'), u.group_name,
           c.primary_attempts, c.properties::text, extract(epoch FROM p_now - c.enqueued_at)::double precision
      FROM __HOST___q c
     CROSS JOIN routing_version v
      LEFT JOIN spool s ON s.message_id = c.message_id
      LEFT JOIN parts p ON p.part_id = s.body_part_id
      LEFT JOIN subscriptions u ON u.id = c.subscription_id
     WHERE c.claim_id = p_claim_id
     ORDER BY c.priority, c.seq;
END $$;
