-- Return the instance id of the routing failure report about this instance, or null. A report is about a range of
-- instance ids, and ranges do not overlap. So the report is the one whose range starts last at or before the instance.
-- Index: suspended_queue_reports.
CREATE OR REPLACE FUNCTION messagebox.report_of(p_instance_id uuid) RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT CASE WHEN r.last_related_instance_id >= p_instance_id THEN r.instance_id END
      FROM suspended_queue r
     WHERE r.cause = 'routing failure report' AND r.related_instance_id <= p_instance_id
     ORDER BY r.related_instance_id DESC
     LIMIT 1;
$$;
