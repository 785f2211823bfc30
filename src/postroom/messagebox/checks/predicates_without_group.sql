-- Predicates of deleted groups. They match no message.
SELECT 'predicates of group ' || q.group_id
  FROM (SELECT DISTINCT group_id FROM predicates) q
 WHERE NOT EXISTS (SELECT 1 FROM predicate_groups g WHERE g.id = q.group_id)
