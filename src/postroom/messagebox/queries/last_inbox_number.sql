-- The last number of the next rows of a location after a number; null if there are none. Index: inbox by location and
-- number.
SELECT max(number)
  FROM (SELECT number FROM inbox WHERE location_id = %s AND number > %s ORDER BY number LIMIT %s) AS next
