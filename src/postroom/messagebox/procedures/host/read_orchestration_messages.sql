-- Return messages of the instances of a claim, or of one of them, in order, at most p_limit of each instance: those
-- that they have not received, with numbers above p_after, or, with p_received, those that they have received.
-- Indexes: orchestration_instances_claimed, the primary keys of orchestration_messages, spool and parts.
CREATE OR REPLACE FUNCTION messagebox.read_orchestration_messages___HOST__(
    p_claim_id uuid, p_instance_id uuid, p_received boolean, p_after bigint, p_limit integer)
RETURNS TABLE (
    seq bigint, message_id uuid, service bytea, instance_id uuid, context text, part_count integer, body_part_id uuid,
    body_part_name text, content_type text, charset text, body bytea, originator_sid text, originator_pid text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    SELECT m.seq, m.message_id, uuid_send(i.service_id), i.instance_id, c.*
      FROM orchestration_instances i
     CROSS JOIN LATERAL (
           SELECT * FROM orchestration_messages m
            WHERE m.instance_id = i.instance_id AND m.seq > p_after AND (m.consumed_in IS NOT NULL) = p_received
            ORDER BY m.seq LIMIT p_limit) m
      LEFT JOIN LATERAL read_content(m.message_id) c ON true
     WHERE i.claim_id = p_claim_id AND i.host_id = __HOST_ID__
       AND (p_instance_id IS NULL OR i.instance_id = p_instance_id)
     ORDER BY i.instance_id, m.seq;
$$;
