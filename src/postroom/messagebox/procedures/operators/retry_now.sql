-- Make the messages of a send port due that wait for their next attempt, and record it in the audit. If the circuit
-- breaker of the port is open, its next probe is due, too. Returns the number of messages. Raises PR404 for an unknown
-- port.
-- Reads the scheduled queues whole. Locks: the updated rows, which a dequeue skips meanwhile.
CREATE OR REPLACE FUNCTION messagebox.retry_now(p_port_id uuid) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    port_name text;
    made_due bigint;
BEGIN
    SELECT s.name INTO port_name FROM services s
     WHERE s.id = p_port_id AND s.kind = 'send port' AND s.removed_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no send port %', p_port_id USING ERRCODE = 'PR404';
    END IF;
    UPDATE open_circuits SET next_probe_at = now() WHERE port_id = p_port_id AND closed_at IS NULL;
    UPDATE scheduled_queue SET valid_from = now()
     WHERE service_id = p_port_id AND state = 'waiting to retry' AND valid_from > now();
    GET DIAGNOSTICS made_due = ROW_COUNT;
    PERFORM record_action('port.retry', port_name, jsonb_build_object('retrying', made_due),
                          jsonb_build_object('ready to run', made_due));
    RETURN made_due;
END $$;
