-- Find the subscriptions of a batch of messages, whose promoted properties are in message_properties. For publishers
-- without an index in memory. Pass one finds candidate groups by one equality. Groups without an equality are
-- candidates for every message. Pass two keeps the candidates whose predicates all hold. Instance subscriptions are
-- found by the hash of their values (find_correlated).
-- Indexes: first_pass_predicates (property_id, value_key), predicates (group_id), message_properties' primary key.
CREATE OR REPLACE FUNCTION messagebox.find_subscriptions(p_batch_id uuid)
RETURNS TABLE (message_id uuid, subscription_id bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    WITH candidates AS (
        SELECT m.message_id, f.group_id
          FROM message_properties m
          JOIN first_pass_predicates f ON f.property_id = m.property_id AND f.value_key = m.value_key
         WHERE m.batch_id = p_batch_id
        UNION
        SELECT m.message_id, g.id
          FROM (SELECT DISTINCT p.message_id FROM message_properties p WHERE p.batch_id = p_batch_id) m
         CROSS JOIN predicate_groups g
         WHERE NOT g.has_first_pass
    )
    SELECT DISTINCT c.message_id, g.subscription_id
      FROM candidates c
      JOIN predicate_groups g ON g.id = c.group_id
      JOIN subscriptions s ON s.id = g.subscription_id AND s.removed_at IS NULL
     WHERE NOT EXISTS (
        SELECT 1
          FROM predicates q
          LEFT JOIN message_properties m
                 ON m.batch_id = p_batch_id AND m.message_id = c.message_id AND m.property_id = q.property_id
         WHERE q.group_id = c.group_id
           AND NOT predicate_holds(q.operator, q.value_key, q.value_text, q.value_int, q.value_decimal, q.value_float,
                                   m.value_key, m.value_text, m.value_int, m.value_decimal, m.value_float))
    UNION ALL
    SELECT i.message_id, i.subscription_id FROM find_correlated(p_batch_id) i;
$$;
