-- The last number of the next interchanges of a location after a number; null if there are none. A location has either
-- file claims or rows in the inbox. Indexes: file_claims and inbox by location and number.
SELECT max(number)
  FROM ((SELECT number FROM file_claims
          WHERE location_id = %(location_id)s AND number > %(after)s AND state = 2 ORDER BY number LIMIT %(limit)s)
        UNION ALL
        (SELECT number FROM inbox
          WHERE location_id = %(location_id)s AND number > %(after)s ORDER BY number LIMIT %(limit)s)) AS next
