-- Return true if the login may set the originator of its messages. That is a right on two columns of the spool, which
-- COPY checks itself. Functions that insert for a login ask for the same right here.
CREATE OR REPLACE FUNCTION messagebox.is_trusted() RETURNS boolean
LANGUAGE sql STABLE SET search_path = messagebox, management, pg_temp AS $$
    SELECT has_column_privilege(session_user, 'messagebox.spool', 'originator_sid', 'insert');
$$;
