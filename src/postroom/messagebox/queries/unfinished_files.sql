-- The number of unfinished files and interchanges of each receive location: not published yet, quarantined, or
-- published and not removable.
SELECT location_id, count(*)
  FROM (SELECT location_id FROM file_claims WHERE state IN (1, 2, 5) OR state = 3 AND path !~ '/kept/[^/]*$'
         UNION ALL SELECT location_id FROM inbox) AS waiting
 GROUP BY location_id
