-- Make the messages of a send port due that wait for their next attempt. If the circuit breaker of the port is open,
-- its next probe is due, too. Returns the number of messages.
-- Reads the scheduled queues whole. Locks: the updated rows, which a dequeue skips meanwhile.
CREATE OR REPLACE FUNCTION messagebox.retry_now(p_service_id uuid, p_now timestamptz DEFAULT now()) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    made_due bigint;
BEGIN
    UPDATE open_circuits SET next_probe_at = p_now WHERE port_id = p_service_id AND closed_at IS NULL;
    UPDATE scheduled_queue SET valid_from = p_now
     WHERE service_id = p_service_id AND state = 1024 AND valid_from > p_now;
    GET DIAGNOSTICS made_due = ROW_COUNT;
    RETURN made_due;
END $$;
