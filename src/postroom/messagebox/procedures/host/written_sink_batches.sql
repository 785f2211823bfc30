-- Return the written batches of a sink of this host that are not completed, in order.
-- The table is small: a row for each sink, and few more.
CREATE OR REPLACE FUNCTION messagebox.written_sink_batches___HOST__(p_port_id uuid)
RETURNS TABLE (batch_id uuid, number bigint, attempt integer)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT b.batch_id, b.number, b.attempt FROM sink_batches b
     WHERE b.host_id = __HOST_ID__ AND b.port_id = p_port_id AND b.written
     ORDER BY b.number
$$;
