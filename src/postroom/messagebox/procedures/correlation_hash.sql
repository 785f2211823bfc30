-- Return the hash by which an instance subscription is found: of its correlation type and its values, as value keys in
-- the order of the type's property ids. Publishers with an index in memory compute the same hash
-- (agent/routing/correlation.py). The values are compared after the hash, so collisions are harmless.
CREATE OR REPLACE FUNCTION messagebox.correlation_hash(p_type_id integer, p_values text[]) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('x' || encode(substr(sha256(convert_to(
               p_type_id || chr(31) || array_to_string(p_values, chr(31)), 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint;
$$;
