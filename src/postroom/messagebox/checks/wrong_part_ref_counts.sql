-- Parts whose reference count differs from the number of references of their messages in the queues.
WITH referred AS (
    SELECT p.part_id, sum(r.rows) AS rows
      FROM (SELECT message_id, count(*) AS rows FROM instances GROUP BY message_id) r
      JOIN spool s USING (message_id)
     CROSS JOIN unnest(s.part_ids) AS p (part_id)
     GROUP BY p.part_id
)
SELECT 'part ' || part_id || ', ' || coalesce(c.total, 0) || ' counted, ' || coalesce(r.rows, 0) || ' in the queues'
  FROM referred r
  FULL JOIN part_ref_counts c USING (part_id)
 WHERE coalesce(c.total, 0) >= 0 AND coalesce(c.total, 0) <> coalesce(r.rows, 0)
