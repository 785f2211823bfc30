-- Assign numbers to the next rows of a location's inbox, in the order of their arrival, up to a maximum number of rows.
-- Only committed rows are visible, and only the one reader of the location runs this. So no lower number becomes
-- visible after a higher one. Index: inbox_new. Locks: the rows.
UPDATE inbox i
   SET number = n.number
  FROM (SELECT interchange_id, nextval('intake_number') AS number
          FROM (SELECT interchange_id FROM inbox
                 WHERE location_id = %s AND number IS NULL AND problem IS NULL
                 ORDER BY stored_at LIMIT %s) AS waiting) AS n
 WHERE i.interchange_id = n.interchange_id
