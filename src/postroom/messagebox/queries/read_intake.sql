-- The numbered interchanges of a location in a range of numbers, in order, with their sizes in bytes.
-- Indexes: file_claims and inbox by location and number.
SELECT interchange_id, size
  FROM (SELECT number, interchange_id, size FROM file_claims
         WHERE location_id = %(location_id)s AND number > %(after)s AND number <= %(last)s AND state = 2
        UNION ALL
        SELECT number, interchange_id, size FROM inbox
         WHERE location_id = %(location_id)s AND number > %(after)s AND number <= %(last)s) AS numbered
 ORDER BY number
