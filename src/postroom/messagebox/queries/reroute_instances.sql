-- Reroute instances. Returns those that were rerouted, with the names of their hosts. Indexes and locks: as
-- reroute_instances().
SELECT r.instance_id, h.name
  FROM reroute_instances(%s) r
  JOIN hosts h ON h.id = r.host_id
