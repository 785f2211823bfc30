-- The services of this host for monitoring: send ports, sinks, orchestrations, lookups, programs and receive
-- locations. Each has its state, why it fails, the number of its messages (of a location also files and inbox rows that
-- are not published, of an orchestration also suspended instances), the age of the oldest one that waits in seconds,
-- and the number of its quarantined files and inbox rows with the problem of the last one.
-- The state is 'failing' if a process reports a problem, a circuit breaker is open, or messages have failed and wait to
-- be sent again. Otherwise it is that of the service (bound, stopped, started), 'unused' for a program that has not
-- received for two minutes, and what its process has reported for a location; null: no process serves the location.
-- Reads all rows of the queues and the intake of the host.
CREATE OR REPLACE FUNCTION messagebox.read_services___HOST__()
RETURNS TABLE (service_id uuid, kind text, name text, version integer, state text, reason text, has_problem boolean,
               waiting bigint, retrying bigint, suspended bigint, age double precision, quarantined bigint,
               last_problem text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    WITH known AS (
        SELECT v.id, CASE WHEN k.port_id IS NOT NULL OR b.id IS NOT NULL THEN 'sink' ELSE v.kind END AS kind, v.name,
               v.version, v.state::text AS state,
               CASE WHEN k.state <> 'waiting' AND n.id IS NOT NULL THEN k.reason END AS reason
          FROM services v
          LEFT JOIN running_sinks k ON k.port_id = v.id
          LEFT JOIN host_instances n ON n.server = k.server AND n.pid = k.pid AND n.host_id = v.host_id
          LEFT JOIN LATERAL (SELECT s.id FROM subscriptions s
                              WHERE s.service_id = v.id AND s.service_class = 'spark_sinks' LIMIT 1) b
                 ON v.kind = 'send port'
         WHERE v.host_id = __HOST_ID__ AND v.removed_at IS NULL AND v.kind IN ('send port', 'orchestration', 'lookup')
        UNION ALL
        SELECT v.id, v.kind, v.name, NULL, r.state, r.reason
          FROM services v LEFT JOIN running_locations r ON r.location_id = v.id
         WHERE v.host_id = __HOST_ID__ AND v.location_id IS NOT NULL
        UNION ALL
        SELECT p.service_id, 'program', p.name, NULL,
               CASE WHEN p.last_used_at < now() - interval '2 minutes' THEN 'unused' ELSE 'started' END, NULL
          FROM program_subscriptions p WHERE p.host_id = __HOST_ID__),
    problems AS (
        SELECT p.key::uuid AS id, min(p.value) AS reason
          FROM host_instances i CROSS JOIN LATERAL jsonb_each_text(i.problems) p
         WHERE i.host_id = __HOST_ID__ AND i.dead_since IS NULL GROUP BY 1),
    circuits AS (
        SELECT port_id AS id, reason FROM open_circuits WHERE host_id = __HOST_ID__ AND closed_at IS NULL),
    queued AS (
        SELECT service_id AS id, count(*) AS messages, count(*) FILTER (WHERE attempt > 0) AS failed,
               min(enqueued_at) AS oldest
          FROM work_queue WHERE host_id = __HOST_ID__ GROUP BY 1),
    scheduled AS (
        SELECT service_id AS id, count(*) AS messages, count(*) FILTER (WHERE state = 'waiting to retry') AS failed,
               min(enqueued_at) AS oldest,
               min(split_part(error_description, E'\n', 1)) FILTER (WHERE state = 'waiting to retry') AS reason
          FROM scheduled_queue WHERE host_id = __HOST_ID__ GROUP BY 1),
    suspended AS (
        SELECT service_id AS id, count(*) AS items
          FROM (SELECT service_id FROM suspended_queue WHERE host_id = __HOST_ID__
                UNION ALL
                SELECT service_id FROM orchestration_instances
                 WHERE host_id = __HOST_ID__ AND suspended_at IS NOT NULL) i
         GROUP BY 1),
    intake AS (
        SELECT location_id AS id, count(*) FILTER (WHERE NOT is_quarantined) AS waiting,
               min(arrived_at) FILTER (WHERE NOT is_quarantined) AS oldest,
               count(*) FILTER (WHERE is_quarantined) AS quarantined,
               (array_agg(problem ORDER BY arrived_at DESC) FILTER (WHERE is_quarantined))[1] AS problem
          FROM (SELECT location_id, state IN (4, 5) AS is_quarantined, name || ' ' || problem AS problem,
                       claimed_at AS arrived_at
                  FROM file_claims WHERE state <> 3
                UNION ALL
                SELECT location_id, problem IS NOT NULL, problem, stored_at FROM inbox) f
         GROUP BY 1),
    described AS (
        SELECT v.*, coalesce(p.reason, c.reason, v.reason, t.reason,
                             CASE WHEN q.failed > 0 THEN 'Messages that have failed are sent again.' END) AS failure,
               coalesce(q.messages, 0) + coalesce(t.messages, 0) + coalesce(f.waiting, 0) AS waiting,
               coalesce(t.failed, 0) AS retrying, coalesce(s.items, 0) AS suspended,
               least(q.oldest, t.oldest, f.oldest) AS oldest,
               coalesce(f.quarantined, 0) AS quarantined, f.problem AS last_problem, p.id IS NOT NULL AS has_problem
          FROM known v
          LEFT JOIN problems p USING (id) LEFT JOIN circuits c USING (id) LEFT JOIN queued q USING (id)
          LEFT JOIN scheduled t USING (id) LEFT JOIN suspended s USING (id) LEFT JOIN intake f USING (id))
    SELECT d.id, d.kind, d.name, d.version,
           CASE WHEN d.has_problem THEN 'failing'
                WHEN d.kind = 'location' THEN d.state
                WHEN d.state = 'started' AND d.failure IS NOT NULL THEN 'failing'
                ELSE d.state END,
           CASE WHEN d.kind <> 'location' OR d.has_problem OR d.state IN ('throttled', 'failing') THEN d.failure END,
           d.has_problem, d.waiting, d.retrying, d.suspended,
           coalesce(extract(epoch FROM now() - d.oldest), 0)::double precision, d.quarantined, d.last_problem
      FROM described d
     ORDER BY d.name, d.version;
$$;
