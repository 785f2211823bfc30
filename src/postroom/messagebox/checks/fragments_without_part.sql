-- Fragments that belong to no part.
SELECT 'fragments of part ' || f.part_id
  FROM (SELECT DISTINCT part_id FROM fragments) f
 WHERE NOT EXISTS (SELECT 1 FROM parts p WHERE p.part_id = f.part_id)
