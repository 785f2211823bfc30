-- The unfinished files of a bulk location: size, published rows, invalid rows, processed bytes.
-- Indexes: file_claims by location and number; those of split_progress.
SELECT c.interchange_id, coalesce(c.size, 0), coalesce(p.row_count, 0), coalesce(p.bad_rows, 0),
       coalesce(p.bytes_done, 0)
  FROM file_claims c
  LEFT JOIN split_progress(ARRAY(
           SELECT interchange_id FROM file_claims WHERE location_id = %s AND reading IS NOT NULL)) p
         ON p.interchange_id = c.interchange_id
 WHERE c.location_id = %s AND c.state = 2
