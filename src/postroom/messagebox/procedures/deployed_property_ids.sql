-- Return the ids of properties in the given order. Raise PR404 for a property that is not deployed or has another type.
-- Index: properties (key).
CREATE OR REPLACE FUNCTION messagebox.deployed_property_ids(p_keys text[], p_value_types smallint[]) RETURNS integer[]
LANGUAGE plpgsql STABLE
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    ids integer[];
    missing text;
BEGIN
    SELECT array_agg(r.id ORDER BY g.number), min(g.key) FILTER (WHERE r.id IS NULL) INTO ids, missing
      FROM unnest(p_keys, p_value_types) WITH ORDINALITY AS g (key, value_type, number)
      LEFT JOIN properties r ON r.key = g.key AND r.value_type = g.value_type;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'property % is not deployed with this type', missing USING ERRCODE = 'PR404';
    END IF;
    RETURN ids;
END $$;
