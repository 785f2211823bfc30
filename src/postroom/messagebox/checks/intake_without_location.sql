-- Claimed files and accepted interchanges of deleted receive locations.
SELECT 'file ' || c.name || ', kept as ' || c.path
  FROM file_claims c
 WHERE NOT EXISTS (SELECT 1 FROM management.receive_locations l WHERE l.id = c.location_id)
UNION ALL
SELECT 'interchange ' || i.interchange_id || ', accepted from ' || i.stored_by || ' at ' || i.stored_at
  FROM inbox i
 WHERE NOT EXISTS (SELECT 1 FROM management.receive_locations l WHERE l.id = i.location_id)
