-- Lock the routing, shared, as the last step of a publish. Until commit no subscription, state or host can change.
-- Returns the routing version to compare, and the active ref-count logs.
-- The client has 3 s to send each of its remaining statements: a frozen client must not stop all others.
-- Locks: advisory (7001, 0) shared. plpgsql and volatile, so that the reads see what was committed while it waited.
CREATE OR REPLACE FUNCTION messagebox.lock_routing(OUT version bigint, OUT message_log smallint, OUT part_log smallint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7001, 0);
    PERFORM set_config('idle_in_transaction_session_timeout', '3s', true);
    SELECT v.version,
           (SELECT active FROM active_ref_count_log WHERE kind = 'message'),
           (SELECT active FROM active_ref_count_log WHERE kind = 'part')
      INTO version, message_log, part_log
      FROM routing_version v;
END $$;
