-- Count the instances of this host and their messages by state, with the age of the oldest message in seconds. An
-- instance with several messages has the state of its first one. The row without a state counts
-- the messages that its orchestrations hold (state references). Reads all rows of the queues of the host.
CREATE OR REPLACE FUNCTION messagebox.count_instances___HOST__()
RETURNS TABLE (state messagebox.instance_state, instances bigint, messages bigint, age double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT f.state, sum(f.instances)::bigint, sum(f.messages)::bigint,
           extract(epoch FROM now() - min(f.enqueued_at))::double precision
      FROM (SELECT g.state, g.messages, g.enqueued_at,
                   CASE WHEN g.instance_id IS NULL THEN g.messages
                        WHEN g.first_seq = min(g.first_seq) OVER (PARTITION BY g.instance_id) THEN 1
                        ELSE 0 END AS instances
              FROM (SELECT i.state,
                           CASE WHEN i.task IN ('join_instance', 'deliver_in_order') THEN i.instance_id END
                               AS instance_id,
                           count(*) AS messages, min(i.seq) AS first_seq, min(i.enqueued_at) AS enqueued_at
                      FROM instances i WHERE i.host_id = __HOST_ID__ GROUP BY 1, 2) g) f
     GROUP BY f.state
    UNION ALL
    SELECT NULL, 0, count(*), extract(epoch FROM now() - min(m.enqueued_at))::double precision
      FROM orchestration_messages m JOIN orchestration_instances o USING (instance_id) WHERE o.host_id = __HOST_ID__;
$$;
