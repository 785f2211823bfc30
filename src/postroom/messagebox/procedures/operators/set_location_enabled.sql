-- Enable or disable a receive location, and record it in the audit. Raises PR404 for an unknown location, and PR409 if
-- it is in that state already.
-- Locks: changes the routing (advisory (7001, 0) exclusive), because running processes detect changes by its version.
CREATE OR REPLACE FUNCTION messagebox.set_location_enabled(p_location text, p_enabled boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    was_enabled boolean;
BEGIN
    PERFORM change_routing();
    SELECT l.enabled INTO was_enabled FROM receive_locations l WHERE l.name = p_location;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no receive location %', p_location USING ERRCODE = 'PR404';
    ELSIF was_enabled = p_enabled THEN
        RAISE EXCEPTION 'receive location % is already %', p_location,
            CASE WHEN p_enabled THEN 'enabled' ELSE 'disabled' END USING ERRCODE = 'PR409';
    END IF;
    UPDATE receive_locations l SET enabled = p_enabled WHERE l.name = p_location;
    PERFORM record_action(CASE WHEN p_enabled THEN 'location.enable' ELSE 'location.disable' END, p_location,
                          jsonb_build_object('enabled', was_enabled), jsonb_build_object('enabled', p_enabled));
END $$;
