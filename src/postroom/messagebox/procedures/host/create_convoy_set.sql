-- Create a convoy set of this host: the properties that group messages into convoys.
CREATE OR REPLACE FUNCTION messagebox.create_convoy_set___HOST__(p_keys text[], p_value_types smallint[])
RETURNS integer
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT messagebox.int_create_convoy_set(__HOST_ID__::smallint, p_keys, p_value_types);
$$;
