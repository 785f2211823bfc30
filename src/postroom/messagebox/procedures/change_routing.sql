-- Start a change of routing (enlist, start, stop, unenlist, a new host). Waits until running publishes have committed,
-- blocks new ones, and returns the new routing version.
-- Locks: advisory (7001, 0) exclusive, until the transaction ends.
CREATE OR REPLACE FUNCTION messagebox.change_routing() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    new_version bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(7001, 0);
    -- Until this transaction ends, it sees a version that no other transaction sees, and that may be rolled back.
    PERFORM set_config('postroom.routing_changed', 'yes', true);
    UPDATE routing_version SET version = version + 1 RETURNING version INTO new_version;
    -- Sent at the commit. All processes read their configuration again.
    PERFORM pg_notify('postroom_configuration', '');
    RETURN new_version;
END $$;
