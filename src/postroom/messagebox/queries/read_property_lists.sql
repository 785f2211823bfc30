-- The correlation types and the convoy sets, each with the keys of its properties in order.
SELECT l.kind, l.id, array_agg(p.key ORDER BY o.number)
  FROM (SELECT 'correlation' AS kind, id, property_ids FROM correlation_types
        UNION ALL SELECT 'convoy', id, property_ids FROM convoy_sets) l
 CROSS JOIN unnest(l.property_ids) WITH ORDINALITY AS o (property_id, number)
  JOIN properties p ON p.id = o.property_id
 GROUP BY l.kind, l.id
