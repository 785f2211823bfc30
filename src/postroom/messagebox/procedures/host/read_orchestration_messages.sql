-- Return the messages of the instances of a claim, in order: those that they have not received, or, with p_instance_id,
-- all messages of that instance.
-- Indexes: orchestration_instances_claimed, the primary keys of orchestration_messages, spool and parts.
CREATE OR REPLACE FUNCTION messagebox.read_orchestration_messages___HOST__(p_claim_id uuid, p_instance_id uuid DEFAULT NULL)
RETURNS TABLE (
    seq bigint, message_id uuid, service bytea, instance_id uuid, context text, part_count integer, body_part_id uuid,
    body_part_name text, content_type text, charset text, body bytea, originator_sid text, originator_pid text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
    SELECT m.seq, m.message_id, uuid_send(i.service_id), m.instance_id, s.context::text, cardinality(s.part_ids),
           s.body_part_id, s.body_part_name, p.content_type, p.charset, p.body,
           coalesce(s.originator_sid, s.published_by), coalesce(s.originator_pid, 'Guest')
      FROM orchestration_instances i
      JOIN orchestration_messages m USING (instance_id)
      LEFT JOIN spool s ON s.message_id = m.message_id
      LEFT JOIN parts p ON p.part_id = s.body_part_id
     WHERE i.claim_id = p_claim_id AND i.host_id = __HOST_ID__
       AND CASE WHEN p_instance_id IS NULL THEN m.consumed_in IS NULL ELSE m.instance_id = p_instance_id END
     ORDER BY m.instance_id, m.seq;
$$;
