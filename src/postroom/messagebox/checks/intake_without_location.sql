-- Claimed files and accepted interchanges of removed receive locations.
SELECT 'file ' || c.name || ', kept as ' || c.path
  FROM file_claims c
 WHERE NOT EXISTS (SELECT 1 FROM services l WHERE l.location_id = c.location_id)
UNION ALL
SELECT 'interchange ' || i.interchange_id || ', accepted from ' || i.stored_by || ' at ' || i.stored_at
  FROM inbox i
 WHERE NOT EXISTS (SELECT 1 FROM services l WHERE l.location_id = i.location_id)
