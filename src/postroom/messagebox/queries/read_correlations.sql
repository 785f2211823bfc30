-- The property keys and values (as value keys) of instance subscriptions, in the order of their correlation type.
-- Index: subscriptions' primary key.
SELECT s.id, array_agg(p.key ORDER BY o.number), s.correlation_values
  FROM subscriptions s
  JOIN correlation_types t ON t.id = s.correlation_type_id
 CROSS JOIN unnest(t.property_ids) WITH ORDINALITY AS o (property_id, number)
  JOIN properties p ON p.id = o.property_id
 WHERE s.id = ANY (%s)
 GROUP BY s.id, s.correlation_values
