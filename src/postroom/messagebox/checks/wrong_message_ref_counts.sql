-- Messages whose reference count differs from the number of references in the queues.
SELECT 'message ' || r.message_id || ', ' || c.total || ' counted, ' || r.rows || ' in the queues'
  FROM (SELECT message_id, count(*) AS rows FROM instances GROUP BY message_id) r
  JOIN message_ref_counts c USING (message_id)
 WHERE c.total >= 0 AND c.total <> r.rows
