-- Return true if the login belongs to this host. Row security on host_instances calls it.
-- Index: hosts' primary key.
CREATE OR REPLACE FUNCTION messagebox.runs_host(p_host_id smallint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM hosts h WHERE h.id = p_host_id AND pg_has_role(session_user, h.role_name, 'member'));
$$;
