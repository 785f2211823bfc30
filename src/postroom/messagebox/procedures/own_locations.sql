-- Return the receive locations of the hosts that the login runs. Row security on the inbox calls it once per statement.
-- Reads hosts and receive_locations whole.
CREATE OR REPLACE FUNCTION messagebox.own_locations() RETURNS uuid[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT coalesce(array_agg(l.id), '{}')
      FROM hosts h JOIN receive_locations l ON l.host_id = h.id
     WHERE pg_has_role(session_user, h.role_name, 'member');
$$;
