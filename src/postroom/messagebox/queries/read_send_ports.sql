-- The send ports of one host (null: of all), or those with these ids (null: all), by name. __ADAPTER__ is the adapter,
-- or its kind for those who may not read it, and __BACKUP_ADAPTER__ is that of the backup transport.
-- Indexes: none needed; there are few.
SELECT id AS port_id, name, host_id, transport_id, __ADAPTER__ AS adapter_json, uri,
       __BACKUP_ADAPTER__ AS backup_adapter, backup_uri, settings, state, subscription_id
  FROM management.send_ports
 WHERE host_id = coalesce(%(host_id)s, host_id) AND (%(ids)s::uuid[] IS NULL OR id = ANY (%(ids)s))
 ORDER BY name
