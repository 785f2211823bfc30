-- Whether a filter or a correlation names one of these properties. Reads all predicates, so callers keep the answer
-- while the routing version stays the same.
WITH named AS (SELECT array_agg(id) AS ids FROM properties WHERE key = ANY (%s))
SELECT EXISTS (SELECT FROM predicates p WHERE p.property_id = ANY ((SELECT ids FROM named)::integer[]))
    OR EXISTS (SELECT FROM correlation_types t WHERE t.property_ids && (SELECT ids FROM named)::integer[])
