-- Create a convoy set of one to three properties for activation subscriptions of this host. Called by
-- create_convoy_set_<host>.
CREATE OR REPLACE FUNCTION messagebox.int_create_convoy_set(p_host_id smallint, p_keys text[], p_value_types smallint[])
RETURNS integer
LANGUAGE sql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
    INSERT INTO convoy_sets (host_id, property_ids) VALUES (p_host_id, deployed_property_ids(p_keys, p_value_types))
    RETURNING id;
$$;
