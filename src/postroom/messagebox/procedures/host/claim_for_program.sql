-- Claim up to p_limit messages of a program's subscription, best priority and lowest number first, and return them as
-- dequeue_messages_<host> does. The claim is valid until its lease expires. No row if nothing waits.
-- A message whose lease has expired twice may have killed the programs that received it. It is claimed alone, before
-- the others, and only while no other such message of the subscription is claimed: the next program that dies with one
-- shows which one it is.
-- Indexes: work_queue_suspects, and work_queue_programs, walked in its order; see dequeue_messages for the settings.
-- Locks: the claimed rows, for the moment of the claim.
CREATE OR REPLACE FUNCTION messagebox.claim_for_program___HOST__(
    p_service_id uuid, p_claim_id uuid, p_limit integer, p_lease interval, p_now timestamptz DEFAULT clock_timestamp()
) RETURNS TABLE (
    routing_version bigint, seq bigint, message_id uuid, service bytea, instance_id uuid, task text,
    attempt integer, context text, part_count integer, body_part_id uuid, body_part_name text, content_type text,
    charset text, body bytea, originator_sid text, originator_pid text, group_name text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    row_ids tid[] := '{}';
BEGIN
    PERFORM release_due___HOST__(10 * p_limit, p_now);
    UPDATE program_subscriptions u SET last_used_at = p_now
     WHERE u.service_id = p_service_id AND u.last_used_at NOT BETWEEN p_now - interval '1 minute' AND p_now;
    IF NOT EXISTS (SELECT 1 FROM __HOST___q s WHERE s.service_class = 'programs' AND s.service_id = p_service_id
                                                AND s.expired_leases >= 2 AND s.claim_id IS NOT NULL) THEN
        row_ids := ARRAY(
            SELECT w.ctid FROM __HOST___q w
             WHERE w.service_class = 'programs' AND w.service_id = p_service_id AND w.expired_leases >= 2
               AND w.claim_id IS NULL
             ORDER BY w.priority, w.seq LIMIT 1 FOR UPDATE SKIP LOCKED);
    END IF;
    IF cardinality(row_ids) = 0 THEN
        row_ids := ARRAY(
            SELECT w.ctid FROM __HOST___q w
             WHERE w.claim_id IS NULL AND w.service_class = 'programs' AND w.service_id = p_service_id
               AND (w.expired_leases >= 2) IS NOT TRUE
             ORDER BY w.priority, w.seq LIMIT p_limit FOR UPDATE SKIP LOCKED);
    END IF;
    UPDATE __HOST___q q SET claim_id = p_claim_id, claimed_by = NULL WHERE q.ctid = ANY (row_ids);
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO leases (claim_id, service_id, length, expires_at)
    VALUES (p_claim_id, p_service_id, p_lease, p_now + p_lease);
    RETURN QUERY
    SELECT v.version, c.seq, c.message_id, uuid_send(c.service_id), c.instance_id, c.task::text, c.attempt, m.*,
           NULL::text
      FROM __HOST___q c
     CROSS JOIN routing_version v
      LEFT JOIN LATERAL read_content(c.message_id) m ON true
     WHERE c.claim_id = p_claim_id
     ORDER BY c.seq;
END $$;
