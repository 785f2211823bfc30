-- The send ports of one host (null: of all), or those with these ids (null: all), by name. __DEFINITION__ is the column
-- that the login may read.
-- Indexes: none needed; there are few.
SELECT id AS port_id, name, host_id, transport_id, __DEFINITION__ AS definition, uri, backup_uri
  FROM management.send_ports
 WHERE host_id = coalesce(%(host_id)s, host_id) AND (%(ids)s::uuid[] IS NULL OR id = ANY (%(ids)s))
 ORDER BY name
