-- Make messages due that wait because the circuit breaker of their port is open. While it is open: one message as a
-- probe, whenever a probe is due. The next probe is the message with the next number, so that a message that can never
-- be sent does not keep the breaker open. After it was closed: all messages, a part with each call, and then the
-- breaker's row is deleted.
-- Index: scheduled_queue_window. Locks: the rows of open_circuits; rows that another session has locked are skipped.
CREATE OR REPLACE FUNCTION messagebox.release_paused___HOST__(p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    circuit open_circuits;
    probe bigint;
    released integer;
    part CONSTANT integer := 5000;
BEGIN
    FOR circuit IN
        SELECT c.* FROM open_circuits c
         WHERE c.host_id = __HOST_ID__ AND (c.closed_at IS NOT NULL OR c.next_probe_at <= p_now)
           FOR UPDATE SKIP LOCKED
    LOOP
        IF circuit.closed_at IS NULL THEN
            -- First those after the last probe, then from the beginning: each walks the index in its order.
            probe := coalesce(
                (SELECT w.seq FROM __HOST___q_scheduled w
                  WHERE w.service_id = circuit.port_id AND w.state = 'scheduled' AND w.paused
                    AND w.seq > circuit.probe_seq
                  ORDER BY w.seq LIMIT 1),
                (SELECT w.seq FROM __HOST___q_scheduled w
                  WHERE w.service_id = circuit.port_id AND w.state = 'scheduled' AND w.paused
                  ORDER BY w.seq LIMIT 1));
            UPDATE __HOST___q_scheduled w SET valid_from = p_now, paused = false
             WHERE w.service_id = circuit.port_id AND w.state = 'scheduled' AND w.seq = probe;
            UPDATE open_circuits c
               SET probe_seq = probe, probes = c.probes + 1, next_probe_at = p_now + c.probe_interval
             WHERE c.port_id = circuit.port_id AND c.host_id = circuit.host_id AND probe IS NOT NULL;
        ELSE
            UPDATE __HOST___q_scheduled SET valid_from = p_now, paused = false
             WHERE ctid = ANY (ARRAY(
                   SELECT w.ctid FROM __HOST___q_scheduled w
                    WHERE w.service_id = circuit.port_id AND w.state = 'scheduled' AND w.paused
                    LIMIT part));
            GET DIAGNOSTICS released = ROW_COUNT;
            IF released < part THEN
                DELETE FROM open_circuits c WHERE c.port_id = circuit.port_id AND c.host_id = circuit.host_id;
            END IF;
        END IF;
    END LOOP;
END $$;
