-- Bts_DequeueMessages_<host>: move due rows out of the scheduled queue, claim up to p_limit messages of one service
-- class, best priority and lowest number first, and return them with context and body part. One call does all of it,
-- because each call costs a round trip. Every row also has the current routing version. Rows that another thread is
-- claiming are skipped. The originator is returned separately from the context, and so is the send port group that the
-- message was routed through; purge_subscriptions keeps its subscription as long as it is needed. A row whose message
-- is missing, which must not happen, is returned with a null context, so that it does not stay claimed.
-- Index: the partial one over unclaimed rows (service_class, priority, seq), walked in its order. Sequential and bitmap
-- scans and sorts are off: with a statistic from when the queue was empty all of a long queue would be read and sorted.
-- So are all joins but nested loops, which leaves one plan; it is made once and kept (by default a LIMIT that is a
-- parameter is planned at every call, which takes a sixth of the time of a claim).
-- The index still has the rows that were claimed since the oldest snapshot, for example that of a backup, and a walk
-- from its start reads them all. So a caller gives p_starts, for each priority the number to start at: that after the
-- last row of its last claim. If fewer rows than p_limit are found, the walk starts at the start of the index.
-- Rows of the services p_excluded are skipped. The walk reads them, so a claim with exclusions reads a long queue of an
-- excluded service whole; hosts exclude only services that occupy all of their threads.
-- A response is claimed only by the host instance that holds its caller.
-- Messages of ordered send ports are claimed in addition, at most p_ahead of each port (see claim_ordered_messages).
-- Locks: the claimed rows, for the moment of the claim; see also claim_ordered_messages.
CREATE OR REPLACE FUNCTION messagebox.dequeue_messages___HOST__(
    p_claim_id uuid, p_host_instance integer, p_service_class messagebox.service_class, p_limit integer,
    p_now timestamptz DEFAULT now(), p_excluded uuid[] DEFAULT '{}', p_ahead integer DEFAULT 25,
    p_starts bigint[] DEFAULT NULL
) RETURNS TABLE (
    routing_version bigint, seq bigint, message_id uuid, service bytea, instance_id uuid, task text,
    attempt integer, context text, part_count integer, body_part_id uuid, body_part_name text, content_type text,
    charset text, body bytea, originator_sid text, originator_pid text, group_name text,
    primary_attempts integer, properties text, age double precision, priority smallint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    row_ids tid[] := '{}';
BEGIN
    PERFORM release_due___HOST__(10 * p_limit, p_now);
    IF p_service_class = 'messaging_in_process'
       AND EXISTS (SELECT 1 FROM __HOST___q w WHERE w.task = 'deliver_in_order') THEN
        PERFORM claim_ordered_messages___HOST__(p_claim_id, p_host_instance, p_limit, p_ahead, p_excluded);
        RETURN QUERY
        SELECT v.version, c.seq, c.message_id, uuid_send(c.service_id), c.instance_id, c.task::text, c.attempt, m.*,
               u.group_name, c.primary_attempts, c.properties::text,
               extract(epoch FROM p_now - c.enqueued_at)::double precision, c.priority
          FROM __HOST___q c
         CROSS JOIN routing_version v
          LEFT JOIN LATERAL read_content(c.message_id) m ON true
          LEFT JOIN subscriptions u ON u.id = c.subscription_id
         WHERE c.claim_id = p_claim_id
         ORDER BY c.seq;
    END IF;
    IF p_starts IS NOT NULL THEN
        row_ids := ARRAY(
            SELECT f.row_id
              FROM unnest(p_starts) WITH ORDINALITY AS s (seq, priority)
             CROSS JOIN LATERAL (
                   SELECT w.ctid AS row_id FROM __HOST___q w
                    WHERE w.claim_id IS NULL AND w.task <> 'deliver_in_order' AND w.service_class = p_service_class
                      AND w.priority = s.priority::smallint AND w.seq >= s.seq
                      AND (w.service_id = ANY (p_excluded)) IS NOT TRUE
                      AND (w.for_host_instance = p_host_instance) IS NOT FALSE
                    ORDER BY w.seq LIMIT p_limit FOR UPDATE SKIP LOCKED) f
             LIMIT p_limit);
    END IF;
    IF cardinality(row_ids) < p_limit THEN
        row_ids := ARRAY(
            SELECT w.ctid FROM __HOST___q w
             WHERE w.claim_id IS NULL AND w.task <> 'deliver_in_order' AND w.service_class = p_service_class
               AND (w.service_id = ANY (p_excluded)) IS NOT TRUE
               AND (w.for_host_instance = p_host_instance) IS NOT FALSE
             ORDER BY w.priority, w.seq LIMIT p_limit FOR UPDATE SKIP LOCKED);
    END IF;
    IF cardinality(row_ids) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH claimed AS (
        UPDATE __HOST___q q SET claim_id = p_claim_id, claimed_by = p_host_instance
         WHERE q.ctid = ANY (row_ids)
     RETURNING q.seq, q.message_id, q.subscription_id, q.service_id, q.instance_id, q.task, q.attempt, q.priority,
               q.primary_attempts, q.properties, q.enqueued_at
    )
    SELECT v.version, c.seq, c.message_id, uuid_send(c.service_id), c.instance_id, c.task::text, c.attempt, m.*,
           u.group_name, c.primary_attempts, c.properties::text,
           extract(epoch FROM p_now - c.enqueued_at)::double precision, c.priority
      FROM claimed c
     CROSS JOIN routing_version v
      LEFT JOIN LATERAL read_content(c.message_id) m ON true
      LEFT JOIN subscriptions u ON u.id = c.subscription_id
     ORDER BY c.priority, c.seq;
END $$;
