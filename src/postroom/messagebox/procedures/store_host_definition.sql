-- Store what applications declare about a host. A trusted host may set the originator of its messages. Raises 42501 if
-- trust changes, and a trusted and an untrusted host would share a login (SEC-09). A login may have its roles through
-- other roles. The owner and superusers are exempt.
-- Locks: changes the routing (advisory (7001, 0) exclusive), because publishers keep in mind whether they are trusted.
CREATE OR REPLACE FUNCTION messagebox.store_host_definition(p_host_id smallint, p_definition jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    host hosts;
    was_trusted boolean;
    shared text;
    elsewhere text;
BEGIN
    PERFORM change_routing();
    SELECT trusted INTO STRICT was_trusted FROM hosts WHERE id = p_host_id;
    UPDATE hosts SET definition = p_definition WHERE id = p_host_id RETURNING * INTO host;
    IF host.trusted = was_trusted THEN
        RETURN;
    END IF;
    SELECT l.rolname, other.name INTO shared, elsewhere
      FROM pg_roles l
      JOIN hosts other ON other.trusted <> host.trusted AND pg_has_role(l.oid, other.role_name, 'member')
     WHERE pg_has_role(l.oid, host.role_name, 'member')
       AND NOT l.rolsuper AND NOT pg_has_role(l.oid, current_user, 'member')
     ORDER BY l.rolcanlogin DESC, l.rolname
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the login % also runs the host %', shared, elsewhere
            USING ERRCODE = '42501', HINT = 'Hosts that are trusted and hosts that are not may not share a login.';
    END IF;
    IF host.trusted THEN
        EXECUTE format('GRANT %I TO %I', '__TRUSTED_ROLE__', host.role_name);
    ELSE
        EXECUTE format('REVOKE %I FROM %I', '__TRUSTED_ROLE__', host.role_name);
    END IF;
END $$;
