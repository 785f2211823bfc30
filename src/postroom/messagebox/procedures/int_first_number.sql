-- Return the number of the first message of an ordered send port, or null if it has none.
-- Indexes: work_queue_ordered, scheduled_queue_instance, suspended_queue_instance.
CREATE OR REPLACE FUNCTION messagebox.int_first_number(p_instance_id uuid) RETURNS bigint
LANGUAGE sql STABLE SET search_path = messagebox, management, pg_temp AS $$
    SELECT least((SELECT min(q.seq) FROM work_queue q
                   WHERE q.instance_id = p_instance_id AND q.task = 'deliver_in_order'),
                 (SELECT min(q.seq) FROM scheduled_queue q
                   WHERE q.instance_id = p_instance_id AND q.task = 'deliver_in_order'),
                 (SELECT min(q.seq) FROM suspended_queue q
                   WHERE q.instance_id = p_instance_id AND q.task = 'deliver_in_order'));
$$;
