-- Move messages of a claim into the scheduled queue for another attempt, and increment their attempts. p_to_backup: the
-- next attempt is the first one of the backup transport. p_properties: context properties to update. Returns how many
-- this claim still had. Delays are relative to the server's time, because the clocks of hosts may differ.
-- Index: work_queue_claimed.
CREATE OR REPLACE FUNCTION messagebox.retry_messages___HOST__(
    p_claim_id uuid, p_seqs bigint[], p_delays interval[], p_error_codes text[], p_error_descriptions text[],
    p_to_backup boolean[], p_properties jsonb[], p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    moved integer;
BEGIN
    WITH failed AS (
        DELETE FROM __HOST___q WHERE claim_id = p_claim_id AND seq = ANY (p_seqs) RETURNING *
    )
    INSERT INTO __HOST___q_scheduled (seq, host_id, message_id, subscription_id, service_class, service_id,
                                      instance_id, priority, task, attempt, primary_attempts, properties, enqueued_at,
                                      counted_in, valid_from, error_code, error_description)
    SELECT f.seq, f.host_id, f.message_id, f.subscription_id, f.service_class, f.service_id, f.instance_id, f.priority,
           f.task, f.attempt + 1, CASE WHEN r.to_backup THEN f.attempt + 1 ELSE f.primary_attempts END,
           CASE WHEN r.properties IS NULL THEN f.properties ELSE coalesce(f.properties, '{}') || r.properties END,
           f.enqueued_at, f.counted_in, p_now + r.delay, r.error_code, r.error_description
      FROM failed f
      JOIN unnest(p_seqs, p_delays, p_error_codes, p_error_descriptions, p_to_backup, p_properties)
           AS r (seq, delay, error_code, error_description, to_backup, properties) ON r.seq = f.seq;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END $$;
