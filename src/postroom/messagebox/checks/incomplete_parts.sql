-- Parts whose stored bytes are fewer or more than their stored size.
SELECT 'part ' || p.part_id || ', ' || coalesce(octet_length(p.body), f.bytes, 0) || ' of ' || p.size || ' bytes'
  FROM parts p
  LEFT JOIN (SELECT part_id, sum(octet_length(body)) AS bytes FROM fragments GROUP BY part_id) f USING (part_id)
 WHERE coalesce(octet_length(p.body), f.bytes, 0) <> p.size
