-- Make a login a member of one of this MessageBox's roles: administrators, operators, or a host. Raises 42501 if the
-- login or one of its members would run a trusted and an untrusted host (SEC-09, see store_host_definition), and PR404
-- for an unknown role or login. Runs with the owner's rights, so that administrators need no right to create roles.
-- Locks: the routing (advisory (7001, 0) exclusive), as store_host_definition: neither decides on what the other is
-- about to change.
CREATE OR REPLACE FUNCTION messagebox.grant_role(p_role text, p_login text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    shared text;
    elsewhere text;
BEGIN
    PERFORM pg_advisory_xact_lock(7001, 0);
    PERFORM check_role(p_role, p_login);
    SELECT l.rolname, other.name INTO shared, elsewhere
      FROM hosts this
      JOIN hosts other ON other.trusted <> this.trusted
      JOIN pg_roles l ON pg_has_role(l.oid, p_login, 'member') AND pg_has_role(l.oid, other.role_name, 'member')
     WHERE this.role_name = p_role AND NOT l.rolsuper AND NOT pg_has_role(l.oid, current_user, 'member')
     ORDER BY l.rolname = p_login DESC, l.rolname
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the login % also runs the host %', shared, elsewhere
            USING ERRCODE = '42501', HINT = 'Hosts that are trusted and hosts that are not may not share a login.';
    END IF;
    EXECUTE format('GRANT %I TO %I', p_role, p_login);
END $$;
