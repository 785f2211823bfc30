-- The predicates of some subscriptions, group by group, in one statement over all ten tables.
-- Indexes: predicate_groups (subscription_id, number), predicates (group_id).
SELECT g.subscription_id, g.number, r.key, p.operator, p.value_text, p.value_int, p.value_decimal, p.value_float
  FROM predicate_groups g
  JOIN predicates p ON p.group_id = g.id
  JOIN properties r ON r.id = p.property_id
 WHERE g.subscription_id = ANY (%s)
 ORDER BY g.subscription_id, g.number
