-- Remove a login from one of this MessageBox's roles. Raises PR404 for an unknown role or login. Runs with the owner's
-- rights, like grant_role.
CREATE OR REPLACE FUNCTION messagebox.revoke_role(p_role text, p_login text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    PERFORM check_role(p_role, p_login);
    EXECUTE format('REVOKE %I FROM %I', p_role, p_login);
END $$;
