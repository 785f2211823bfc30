-- Return the instance id of the routing failure report about this instance, or null.
-- Index: suspended_queue_reports.
CREATE OR REPLACE FUNCTION messagebox.report_of(p_instance_id uuid) RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT instance_id FROM suspended_queue WHERE cause = 3 AND related_instance_id = p_instance_id LIMIT 1;
$$;
