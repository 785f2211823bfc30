-- Stop or start a host, and record it in the audit. Raises PR404 for an unknown host, and PR409 if it is in that state
-- already.
-- Locks: changes the routing (advisory (7001, 0) exclusive), because running processes detect changes by its version.
CREATE OR REPLACE FUNCTION messagebox.set_host_stopped(p_host_id smallint, p_stopped boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    host hosts%ROWTYPE;
BEGIN
    PERFORM change_routing();
    SELECT * INTO host FROM hosts h WHERE h.id = p_host_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no host %', p_host_id USING ERRCODE = 'PR404';
    ELSIF host.stopped = p_stopped THEN
        RAISE EXCEPTION 'host % is already %', host.name, CASE WHEN p_stopped THEN 'stopped' ELSE 'started' END
            USING ERRCODE = 'PR409';
    END IF;
    UPDATE hosts h SET stopped = p_stopped WHERE h.id = p_host_id;
    PERFORM record_action(CASE WHEN p_stopped THEN 'host.stop' ELSE 'host.start' END, host.name,
                          jsonb_build_object('stopped', host.stopped), jsonb_build_object('stopped', p_stopped));
END $$;
