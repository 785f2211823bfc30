-- A login becomes a member of one of this MessageBox's roles: administrators, operators, or those of a host. Refuses
-- (42501) a login that would run a trusted host and one that is not (SEC-09), and (PR404) what is not there.
-- Runs with the rights of the owner, so that administrators can do it without a right to create roles.
CREATE OR REPLACE FUNCTION messagebox.grant_role(p_role text, p_login text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    elsewhere text;
BEGIN
    PERFORM check_role(p_role, p_login);
    SELECT other.name INTO elsewhere
      FROM hosts this JOIN hosts other ON other.trusted <> this.trusted
     WHERE this.role_name = p_role AND pg_has_role(p_login, other.role_name, 'member')
       AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = p_login);
    IF FOUND THEN
        RAISE EXCEPTION 'the login % also runs the host %', p_login, elsewhere
            USING ERRCODE = '42501', HINT = 'Hosts that are trusted and hosts that are not may not share a login.';
    END IF;
    EXECUTE format('GRANT %I TO %I', p_role, p_login);
END $$;
