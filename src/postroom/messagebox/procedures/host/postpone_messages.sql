-- Move messages of a claim into the scheduled queue until the service window of their port opens. No attempt was made.
-- A paused message waits until the circuit breaker of its port is closed, or until it expires after its delay (null:
-- never). If the breaker is closed already, the message is due at once. Returns how many this claim still had. Delays
-- are relative to the server's time, because the clocks of hosts may differ.
-- Index: work_queue_claimed. Locks: the open circuit breakers of the host, shared, so that none is closed between the
-- check and the commit.
CREATE OR REPLACE FUNCTION messagebox.postpone_messages___HOST__(
    p_claim_id uuid, p_seqs bigint[], p_delays interval[], p_paused boolean[], p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    moved integer;
BEGIN
    PERFORM 1 FROM open_circuits c WHERE c.host_id = __HOST_ID__ ORDER BY c.port_id FOR SHARE;
    WITH postponed AS (
        DELETE FROM __HOST___q WHERE claim_id = p_claim_id AND seq = ANY (p_seqs) RETURNING *
    )
    INSERT INTO __HOST___q_scheduled (seq, host_id, message_id, subscription_id, service_class, service_id,
                                      instance_id, priority, task, attempt, primary_attempts, properties, enqueued_at,
                                      counted_in, valid_from, state, paused)
    SELECT f.seq, f.host_id, f.message_id, f.subscription_id, f.service_class, f.service_id, f.instance_id, f.priority,
           f.task, f.attempt, f.primary_attempts, f.properties, f.enqueued_at, f.counted_in,
           CASE WHEN r.paused AND c.port_id IS NULL THEN p_now ELSE coalesce(p_now + r.delay, 'infinity') END, 256,
           r.paused AND c.port_id IS NOT NULL
      FROM postponed f
      JOIN unnest(p_seqs, p_delays, p_paused) AS r (seq, delay, paused) ON r.seq = f.seq
      LEFT JOIN open_circuits c ON c.port_id = f.service_id AND c.host_id = f.host_id AND c.closed_at IS NULL;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END $$;
