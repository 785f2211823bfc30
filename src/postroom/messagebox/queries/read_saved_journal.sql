-- The journal of an orchestration instance, in one statement, so that a persistence point cannot change it meanwhile.
-- Indexes: the primary keys of orchestration_instances, services and orchestration_journal.
SELECT o.name AS orchestration, o.version, i.journals, i.carried, j.entries
  FROM orchestration_instances i
  JOIN services o ON o.id = i.service_id
 CROSS JOIN LATERAL (
       SELECT json_agg(e.turns ORDER BY e.number) AS entries FROM orchestration_journal e
        WHERE e.instance_id = i.instance_id) j
 WHERE i.instance_id = %s AND j.entries IS NOT NULL
