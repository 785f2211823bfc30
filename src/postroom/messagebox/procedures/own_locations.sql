-- Return the receive locations of the hosts that the login runs. Row security on the inbox calls it once per statement.
-- Reads hosts and services whole.
CREATE OR REPLACE FUNCTION messagebox.own_locations() RETURNS uuid[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT coalesce(array_agg(l.id), '{}')
      FROM services l
     WHERE l.location_id IS NOT NULL AND l.host_id = ANY (own_hosts());
$$;
