-- Lock claimed instances, in the order of their ids, for a transaction that stores persistence points of several by
-- more than one of persist_orchestrations, restart_orchestration and end_orchestrations. Claiming locks them in the
-- same order, so that the two cannot deadlock.
-- Index: the primary key. Locks: the rows of the instances.
CREATE OR REPLACE FUNCTION messagebox.lock_orchestrations___HOST__(p_instance_ids uuid[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
    SELECT 1 FROM (
        SELECT 1 FROM orchestration_instances
         WHERE instance_id = ANY (p_instance_ids) AND host_id = __HOST_ID__ ORDER BY instance_id FOR UPDATE) locked;
$$;
