-- Move messages of a claim into the suspended queue, with the reason. p_properties: context properties to update.
-- Returns how many this claim still had. A message with an id in p_instance_ids leaves the instance of its ordered send
-- port and becomes that instance, so that the messages after it do not wait.
-- Index: work_queue_claimed.
CREATE OR REPLACE FUNCTION messagebox.suspend_messages___HOST__(
    p_claim_id uuid, p_seqs bigint[], p_error_codes text[], p_error_descriptions text[], p_adapters text[],
    p_uris text[], p_resumable boolean[], p_properties jsonb[], p_instance_ids uuid[],
    p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    moved integer;
BEGIN
    WITH failed AS (
        DELETE FROM __HOST___q WHERE claim_id = p_claim_id AND seq = ANY (p_seqs) RETURNING *
    )
    INSERT INTO __HOST___q_suspended (seq, host_id, message_id, subscription_id, service_class, service_id,
                                      instance_id, priority, task, attempt, properties, enqueued_at, counted_in,
                                      suspended_at, resumable, cause, error_code, error_description, adapter, uri)
    SELECT f.seq, f.host_id, f.message_id, f.subscription_id, f.service_class, f.service_id,
           coalesce(r.instance_id, f.instance_id), f.priority, CASE WHEN r.instance_id IS NULL THEN f.task ELSE 1 END,
           f.attempt,
           CASE WHEN r.properties IS NULL THEN f.properties ELSE coalesce(f.properties, '{}') || r.properties END,
           f.enqueued_at, f.counted_in, p_now, r.resumable, 2, r.error_code,
           r.error_description, r.adapter, r.uri
      FROM failed f
      JOIN unnest(p_seqs, p_error_codes, p_error_descriptions, p_adapters, p_uris, p_resumable, p_properties,
                  p_instance_ids)
           AS r (seq, error_code, error_description, adapter, uri, resumable, properties, instance_id)
        ON r.seq = f.seq;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END $$;
