-- A login is no member of one of this MessageBox's roles any more. Refuses (PR404) what is not there.
-- Runs with the rights of the owner, as grant_role does.
CREATE OR REPLACE FUNCTION messagebox.revoke_role(p_role text, p_login text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM check_role(p_role, p_login);
    EXECUTE format('REVOKE %I FROM %I', p_role, p_login);
END $$;
