-- Trust a host to set the originator of its messages, or stop trusting it. Raises 42501 if a trusted and an untrusted
-- host would share a login (SEC-09). A login may have its roles through other roles. The owner and superusers are
-- exempt.
-- Locks: changes the routing (advisory (7001, 0) exclusive), because publishers keep in mind whether they are trusted.
CREATE OR REPLACE FUNCTION messagebox.set_trust(p_host_id smallint, p_trusted boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    host_role text;
    shared text;
    elsewhere text;
BEGIN
    PERFORM change_routing();
    UPDATE hosts SET trusted = p_trusted WHERE id = p_host_id RETURNING role_name INTO STRICT host_role;
    SELECT l.rolname, other.name INTO shared, elsewhere
      FROM pg_roles l
      JOIN hosts other ON other.trusted <> p_trusted AND pg_has_role(l.oid, other.role_name, 'member')
     WHERE pg_has_role(l.oid, host_role, 'member')
       AND NOT l.rolsuper AND NOT pg_has_role(l.oid, current_user, 'member')
     ORDER BY l.rolcanlogin DESC, l.rolname
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the login % also runs the host %', shared, elsewhere
            USING ERRCODE = '42501', HINT = 'Hosts that are trusted and hosts that are not may not share a login.';
    END IF;
    IF p_trusted THEN
        EXECUTE format('GRANT %I TO %I', '__TRUSTED_ROLE__', host_role);
    ELSE
        EXECUTE format('REVOKE %I FROM %I', '__TRUSTED_ROLE__', host_role);
    END IF;
END $$;
