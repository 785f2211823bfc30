-- Is there a routing failure report about this instance already?
-- Index: suspended_queue_reports.
CREATE OR REPLACE FUNCTION messagebox.has_report(p_instance_id uuid) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT EXISTS (SELECT 1 FROM suspended_queue WHERE cause = 3 AND related_instance_id = p_instance_id);
$$;
