-- Move suspended instances back into the work queues of their hosts, under their old numbers. They are delivered even
-- if their send port is stopped (INS-08). An instance that was suspended while it waited for a service window waits for
-- it again, as dehydrated (INS-10). An orchestration continues from its last persistence point. Returns the resumed
-- instances. Instances that are not suspended or not resumable are skipped.
-- Indexes: as int_take_suspended; orchestration_instances' primary key.
CREATE OR REPLACE FUNCTION messagebox.resume_instances(p_instance_ids uuid[], p_now timestamptz DEFAULT now())
RETURNS TABLE (instance_id uuid, host_id smallint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    taken queue_row;
    ready queue_row[];
    waiting queue_row[];
BEGIN
    RETURN QUERY
    UPDATE orchestration_instances o
       SET suspended_at = NULL, error_code = NULL, error_description = NULL, process_deaths = 0,
           ready_seq = coalesce(o.ready_seq, nextval('messagebox.queue_sequence'))
     WHERE o.instance_id = ANY (p_instance_ids) AND o.suspended_at IS NOT NULL
    RETURNING o.instance_id, o.host_id;
    FOREACH taken IN ARRAY coalesce(int_take_suspended(p_instance_ids), '{}') LOOP
        taken.attempt := 0;
        taken.enqueued_at := p_now;
        taken.error_code := NULL;
        taken.error_description := NULL;
        IF taken.valid_from > p_now THEN
            waiting := waiting || taken;
        ELSE
            ready := ready || taken;
        END IF;
    END LOOP;
    PERFORM int_enqueue(ready), int_schedule(waiting);
    RETURN QUERY SELECT r.instance_id, r.host_id FROM unnest(ready || waiting) r;
END $$;
