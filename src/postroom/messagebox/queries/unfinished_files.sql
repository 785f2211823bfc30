-- Per receive location: how many files it has taken out of its folder, and interchanges that adapters have accepted for
-- it, that are not published yet, were put aside, or are published and cannot be taken away.
SELECT l.name, count(*)
  FROM (SELECT location_id FROM file_claims WHERE state IN (1, 2, 5) OR state = 3 AND path !~ '/kept/[^/]*$'
         UNION ALL SELECT location_id FROM inbox) AS waiting
  JOIN receive_locations l ON l.id = waiting.location_id
 GROUP BY l.name
