-- The hash that an instance subscription is found by: of its correlation type and of its values, as value keys in the
-- order of the type's property ids. Publishers with an index in memory compute the same (agent/routing/correlation.py). Values are
-- compared after the hash, so that two that share one are no harm.
CREATE OR REPLACE FUNCTION messagebox.correlation_hash(p_type_id integer, p_values text[]) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('x' || encode(substr(sha256(convert_to(
               p_type_id || chr(31) || array_to_string(p_values, chr(31)), 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint;
$$;
