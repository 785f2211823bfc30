-- May the login say on whose behalf it publishes? Whether it may is a right on two columns of the spool, which COPY
-- checks by itself; this asks for the same right, for functions that insert on behalf of a login.
CREATE OR REPLACE FUNCTION messagebox.is_trusted() RETURNS boolean
LANGUAGE sql STABLE SET search_path = messagebox, management, pg_temp AS $$
    SELECT has_column_privilege(session_user, 'messagebox.spool', 'originator_sid', 'insert');
$$;
