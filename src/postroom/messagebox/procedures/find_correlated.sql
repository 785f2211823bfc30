-- Find instance subscriptions, as a part of find_subscriptions. For every correlation type whose properties a message
-- of the batch has promoted, one lookup by the hash of the values, then the values are compared.
-- Indexes: message_properties' primary key, subscriptions_correlation. Other ways to read are off, see
-- find_instance_subscriptions.
CREATE OR REPLACE FUNCTION messagebox.find_correlated(p_batch_id uuid)
RETURNS TABLE (message_id uuid, subscription_id bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    WITH had AS MATERIALIZED (
        SELECT m.message_id, t.id AS type_id,
               array_agg(coalesce(encode(float8send(m.value_float + 0), 'hex'), m.value_key) ORDER BY m.property_id)
                   AS wanted
          FROM correlation_types t
         CROSS JOIN unnest(t.property_ids) AS o (property_id)
          JOIN message_properties m ON m.batch_id = p_batch_id AND m.property_id = o.property_id
         GROUP BY m.message_id, t.id, t.property_ids
        HAVING count(*) = cardinality(t.property_ids)
    )
    SELECT h.message_id, s.id
      FROM had h
      JOIN subscriptions s ON s.correlation_hash = correlation_hash(h.type_id, h.wanted)
       AND s.correlation_type_id = h.type_id AND s.correlation_values = h.wanted
     WHERE s.instance_id IS NOT NULL AND s.removed_at IS NULL;
$$;
