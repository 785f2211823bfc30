-- Return what the MessageBox knows about the services that are not removed. Deployment wrote the same into the
-- artifacts of the schema management.
-- Reads services whole.
CREATE OR REPLACE FUNCTION messagebox.known_services()
RETURNS TABLE (id uuid, kind text, application text, name text, port_name text, version integer, host_id smallint,
               two_way boolean, transport_id uuid)
LANGUAGE sql STABLE SET search_path = messagebox, management, pg_temp AS $$
    SELECT s.id, s.kind, s.application, s.name, s.port_name, s.version, s.host_id, s.two_way, s.transport_id
      FROM services s WHERE s.removed_at IS NULL;
$$;
