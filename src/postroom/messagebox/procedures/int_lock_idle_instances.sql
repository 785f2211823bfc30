-- Lock instances, and return those that no host is working on. They stay idle until commit: a claim that is just being
-- made is seen once it is committed, and others leave the locked rows out.
-- Indexes: the primary key of orchestration_instances; the work queue is read whole, with a plan as in
-- int_take_instances. Locks: the instances' rows in the work queue first, then those of orchestrations.
CREATE OR REPLACE FUNCTION messagebox.int_lock_idle_instances(p_instance_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET search_path = messagebox, management, pg_temp SET plan_cache_mode = force_custom_plan AS $$
BEGIN
    PERFORM 1 FROM work_queue WHERE instance_id = ANY (p_instance_ids) ORDER BY host_id, seq FOR UPDATE;
    PERFORM 1 FROM orchestration_instances WHERE instance_id = ANY (p_instance_ids) ORDER BY instance_id FOR UPDATE;
    RETURN ARRAY(SELECT unnest(p_instance_ids)
                 EXCEPT
                 SELECT w.instance_id FROM work_queue w
                  WHERE w.instance_id = ANY (p_instance_ids) AND w.claim_id IS NOT NULL
                 EXCEPT
                 SELECT o.instance_id FROM orchestration_instances o
                  WHERE o.instance_id = ANY (p_instance_ids) AND o.claim_id IS NOT NULL);
END $$;
