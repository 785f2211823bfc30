-- The number of instances by state and by one other field. The conditions are in instance_conditions.sql.
-- Reads all rows of the queues. They are counted before names are read.
SELECT i.state,
       CASE %(by)s WHEN 'host' THEN h.name
                   WHEN 'port' THEN coalesce(v.port_name, s.service_name)
                   ELSE i.value END,
       sum(i.count)::bigint, min(i.oldest), max(i.newest)
  FROM (SELECT i.state, i.host_id, i.service_id, i.subscription_id,
               CASE %(by)s WHEN 'error' THEN i.error_code
                           -- One group for all rows with the same error, at any position.
                           -- The second line of a bad row names the column. Of a traceback, the calls and the
                           -- causes of the error are left out.
                           WHEN 'reason' THEN nullif(concat_ws(' ',
                                regexp_replace(split_part(
                                    regexp_replace(i.error_description,
                                                   '^Traceback (.*\nTraceback )?[^\n]*\n( [^\n]*\n)*', ''),
                                    E'\n', 1),
                                               '\m(row|line|column|record|document|byte) [0-9][0-9,]*', '\1 n', 'gi'),
                                substring(split_part(i.error_description, E'\n', 2)
                                          FROM '^(The column ''[^'']*'' is [^ ]+), but has') || '.'), '')
                           WHEN 'adapter' THEN i.adapter
                           WHEN 'uri' THEN i.uri END AS value,
               count(*), min(i.enqueued_at) AS oldest, max(i.enqueued_at) AS newest
          FROM instances i
         WHERE __CONDITIONS__
         GROUP BY 1, 2, 3, 4, 5) i
  JOIN hosts h ON h.id = i.host_id
  LEFT JOIN services v ON v.id = i.service_id
  LEFT JOIN subscriptions s ON s.id = i.subscription_id
 GROUP BY 1, 2
 ORDER BY 3 DESC, 2, 1
