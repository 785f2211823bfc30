-- Set the state of a service in the MessageBox, as its artifact has it. Decides which suspended messages a start
-- resumes.
-- Index: the primary key of services.
CREATE OR REPLACE FUNCTION messagebox.int_set_service_state(p_service_id uuid, p_state text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    UPDATE services SET state = p_state WHERE id = p_service_id;
$$;
