-- The parts of a message in order, without their content.
-- Index: parts' primary key.
SELECT p.part_id, p.name, p.content_type, p.charset, p.size
  FROM unnest(%s::uuid[]) WITH ORDINALITY AS o (part_id, number)
  JOIN parts p ON p.part_id = o.part_id
 ORDER BY o.number
