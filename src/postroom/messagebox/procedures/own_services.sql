-- Return the services of the hosts that the login runs, and those that still have messages on these hosts. Row security
-- on the definitions of ports and locations calls it once per statement.
-- Reads hosts and services whole.
CREATE OR REPLACE FUNCTION messagebox.own_services() RETURNS uuid[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT coalesce(array_agg(s.id), '{}') FROM services s WHERE s.former_host_ids || s.host_id && own_hosts();
$$;
