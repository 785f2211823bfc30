-- Make the messages due that wait for the service window or the circuit breaker of a send port, because its
-- configuration has changed. A host that finds the new window closed postpones them again.
-- Index: scheduled_queue_window.
CREATE OR REPLACE FUNCTION messagebox.release_postponed(p_service_id uuid, p_now timestamptz DEFAULT now())
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    released bigint;
BEGIN
    UPDATE scheduled_queue SET valid_from = p_now, paused = false
     WHERE service_id = p_service_id AND state = 'scheduled';
    GET DIAGNOSTICS released = ROW_COUNT;
    RETURN released;
END $$;
