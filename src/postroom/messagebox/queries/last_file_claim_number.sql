-- The last number of the next claims of a location after a number; null if there are none.
-- Index: file_claims by location and number.
SELECT max(number)
  FROM (SELECT number FROM file_claims WHERE location_id = %s AND number > %s AND state = 2
         ORDER BY number LIMIT %s) AS next
