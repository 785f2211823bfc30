-- Return the hosts that the login runs. Row security calls it once per statement.
-- Reads the hosts whole.
CREATE OR REPLACE FUNCTION messagebox.own_hosts() RETURNS smallint[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT coalesce(array_agg(h.id), '{}') FROM hosts h WHERE pg_has_role(session_user, h.role_name, 'member');
$$;
