-- The next rows of a location's inbox (at most so many) get their numbers, in the order in which they were handed over.
-- Only rows that are committed are seen, and only the one reader of the location runs this: a number that is visible
-- is never followed by a lower one. Index: inbox_new. Locks: the rows.
UPDATE inbox i
   SET number = n.number
  FROM (SELECT interchange_id, nextval('inbox_number') AS number
          FROM (SELECT interchange_id FROM inbox
                 WHERE location_id = %s AND number IS NULL AND problem IS NULL
                 ORDER BY handed_over_at LIMIT %s) AS waiting) AS n
 WHERE i.interchange_id = n.interchange_id
