-- Resume instances. Returns those that were resumed, with the names of their hosts. Indexes and locks: as
-- resume_instances().
SELECT r.instance_id, h.name
  FROM resume_instances(%s) r
  JOIN hosts h ON h.id = r.host_id
