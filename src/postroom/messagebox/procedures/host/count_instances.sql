-- Count the instances of this host by state, with the age of the oldest one in seconds. The row with state 0 counts the
-- messages that its orchestrations hold (state references). Reads all rows of the queues of the host.
CREATE OR REPLACE FUNCTION messagebox.count_instances___HOST__()
RETURNS TABLE (state smallint, instances bigint, age double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT i.state, count(*), extract(epoch FROM now() - min(i.enqueued_at))::double precision
      FROM instances i WHERE i.host_id = __HOST_ID__ GROUP BY i.state
    UNION ALL
    SELECT 0, count(*), extract(epoch FROM now() - min(m.enqueued_at))::double precision
      FROM orchestration_messages m JOIN orchestration_instances o USING (instance_id) WHERE o.host_id = __HOST_ID__;
$$;
