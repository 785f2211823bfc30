-- Move messages of a claim into the scheduled queue until the service window of their port opens. No attempt was made.
-- A paused message waits until the circuit breaker of its port is closed, or until it expires after its delay (null:
-- never). If the breaker is closed already, the message is due at once. Returns how many this claim still had. Delays
-- are relative to the server's time, because the clocks of hosts may differ.
-- Index: as int_take_claimed. Locks: the open circuit breakers of the host, shared, so that none is closed between the
-- check and the commit.
CREATE OR REPLACE FUNCTION messagebox.postpone_messages___HOST__(
    p_claim_id uuid, p_seqs bigint[], p_delays interval[], p_paused boolean[], p_now timestamptz DEFAULT now()
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    postponement record;
    postponed queue_row;
    scheduled queue_row[];
BEGIN
    PERFORM 1 FROM open_circuits c WHERE c.host_id = __HOST_ID__ ORDER BY c.port_id FOR SHARE;
    FOR postponement IN
        SELECT t AS taken, r.delay, r.paused, c.port_id IS NOT NULL AS is_open
          FROM unnest(int_take_claimed___HOST__(p_claim_id, p_seqs)) t
          JOIN unnest(p_seqs, p_delays, p_paused) AS r (seq, delay, paused) ON r.seq = t.seq
          LEFT JOIN open_circuits c ON c.port_id = t.service_id AND c.host_id = t.host_id AND c.closed_at IS NULL
    LOOP
        postponed := postponement.taken;
        postponed.state := 'scheduled';
        postponed.paused := postponement.paused AND postponement.is_open;
        postponed.valid_from := CASE WHEN postponement.paused AND NOT postponement.is_open THEN p_now
                                     ELSE coalesce(p_now + postponement.delay, 'infinity') END;
        scheduled := scheduled || postponed;
    END LOOP;
    RETURN int_schedule(scheduled);
END $$;
