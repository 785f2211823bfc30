-- The content of one part in pieces that fit into memory, in order; one piece if it is small.
-- Indexes: parts' and fragments' primary keys.
SELECT body FROM parts WHERE part_id = %(part_id)s AND body IS NOT NULL
UNION ALL
(SELECT body FROM fragments WHERE part_id = %(part_id)s ORDER BY number)
