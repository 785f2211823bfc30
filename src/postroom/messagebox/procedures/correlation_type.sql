-- Return the correlation type of these properties (ids in ascending order). Create it if it does not exist. A new type
-- changes the routing, because publishers must know which hashes to look up.
-- Index: correlation_types (property_ids). Locks: for a new one advisory (7001, 0), exclusive.
CREATE OR REPLACE FUNCTION messagebox.correlation_type(p_property_ids integer[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    the_type integer;
BEGIN
    SELECT id INTO the_type FROM correlation_types WHERE property_ids = p_property_ids;
    IF NOT FOUND THEN
        PERFORM change_routing();
        INSERT INTO correlation_types (property_ids) VALUES (p_property_ids) ON CONFLICT DO NOTHING;
        SELECT id INTO STRICT the_type FROM correlation_types WHERE property_ids = p_property_ids;
    END IF;
    RETURN the_type;
END $$;
