-- Return true if the login belongs to the host of this receive location. Row security on file_claims calls it.
-- Indexes: services (location_id), the primary key of hosts.
CREATE OR REPLACE FUNCTION messagebox.serves_location(p_location_id uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM services l JOIN hosts h ON h.id = l.host_id
                    WHERE l.location_id = p_location_id AND pg_has_role(session_user, h.role_name, 'member'));
$$;
