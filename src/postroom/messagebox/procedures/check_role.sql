-- Raise PR404 for a role that does not belong to this MessageBox, and for a login that does not exist.
CREATE OR REPLACE FUNCTION messagebox.check_role(p_role text, p_login text) RETURNS void
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
BEGIN
    IF p_role NOT IN (SELECT '__ADMINISTRATORS_ROLE__' UNION ALL SELECT '__OPERATORS_ROLE__'
                      UNION ALL SELECT role_name FROM hosts) THEN
        RAISE EXCEPTION '% is no role of this MessageBox', p_role USING ERRCODE = 'PR404';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = p_login) THEN
        RAISE EXCEPTION 'there is no login %', p_login USING ERRCODE = 'PR404';
    END IF;
END $$;
