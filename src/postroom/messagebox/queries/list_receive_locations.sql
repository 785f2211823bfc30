-- The receive locations with their hosts, their progress, the number of their unfinished files and inbox rows, and the
-- number of their suspended messages. Reads all rows of the suspended queue and of the inbox.
SELECT l.id AS location_id, l.application, h.name AS host,
       coalesce(c.files, 0) + coalesce(i.interchanges, 0) AS waiting, least(c.oldest, i.oldest) AS oldest,
       coalesce(s.suspended, 0) AS suspended,
       coalesce(c.problems, '{}') || coalesce(i.problems, '{}') AS problems,
       coalesce(r.state, 'starting') AS state, r.since, r.reason, coalesce(r.rows, 0) AS published,
       coalesce(r.rate, 0) AS rate, r.remaining, r.remaining_unit, r.last_batch_at
  FROM services l
  JOIN hosts h ON h.id = l.host_id
  LEFT JOIN (SELECT location_id, count(*) FILTER (WHERE state IN (1, 2)) AS files,
                    min(claimed_at) FILTER (WHERE state IN (1, 2)) AS oldest,
                    array_agg(name || ': ' || problem ORDER BY claimed_at)
                        FILTER (WHERE problem IS NOT NULL) AS problems
               FROM file_claims GROUP BY 1) c ON c.location_id = l.id
  LEFT JOIN (SELECT location_id, count(*) AS interchanges, min(stored_at) AS oldest,
                    array_agg(problem ORDER BY stored_at) FILTER (WHERE problem IS NOT NULL) AS problems
               FROM inbox GROUP BY 1) i ON i.location_id = l.id
  LEFT JOIN running_locations r ON r.location_id = l.id
  LEFT JOIN (SELECT service_id, count(*) AS suspended FROM suspended_queue GROUP BY 1) s ON s.service_id = l.id
 WHERE l.location_id IS NOT NULL
