-- Set the times when a receive location receives messages (null: always), and record it in the audit. Raises PR404 for
-- an unknown location.
-- Locks: changes the routing (advisory (7001, 0) exclusive), because running processes detect changes by its version.
CREATE OR REPLACE FUNCTION messagebox.set_location_schedule(p_location text, p_schedule jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    old_schedule jsonb;
BEGIN
    PERFORM change_routing();
    SELECT l.schedule INTO old_schedule FROM receive_locations l WHERE l.name = p_location;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no receive location %', p_location USING ERRCODE = 'PR404';
    END IF;
    UPDATE receive_locations l SET schedule = p_schedule WHERE l.name = p_location;
    PERFORM record_action('location.schedule', p_location,
                          jsonb_build_object('schedule', coalesce(old_schedule, '"always"')),
                          jsonb_build_object('schedule', coalesce(p_schedule, '"always"')));
END $$;
