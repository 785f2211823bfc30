-- Move suspended instances back into the work queues of their hosts, under their old numbers, to be published by the
-- current subscriptions. A message for a send port gets the task reroute, and the messaging service of the host takes
-- it, even if the port is a Spark sink. So does a message that an ended orchestration instance has not received. Each
-- of those, and each message of an ordered send port, becomes an instance of its own. A received message that has
-- passed its pipeline is published as if it was resumed. Returns the rerouted instances. Others are skipped: not
-- suspended, other messages that are not resumable, messages that a pipeline has to read first, and messages that
-- joined an instance that has not ended.
-- Indexes: as int_take_suspended and int_take_unreceived.
CREATE OR REPLACE FUNCTION messagebox.reroute_instances(p_instance_ids uuid[], p_now timestamptz DEFAULT now())
RETURNS TABLE (instance_id uuid, host_id smallint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    taken CONSTANT queue_row[] := int_take_suspended(p_instance_ids, '{deliver, publish, reroute, deliver_in_order}')
                                  || int_take_unreceived(p_instance_ids);
    rerouted queue_row;
    queued queue_row[];
BEGIN
    FOREACH rerouted IN ARRAY coalesce(taken, '{}') LOOP
        IF rerouted.task IN ('deliver', 'join_instance') THEN
            SELECT CASE WHEN h.definition @> '{"isolated": true}' THEN 'messaging_isolated'
                        ELSE 'messaging_in_process' END
              INTO rerouted.service_class FROM hosts h WHERE h.id = rerouted.host_id;
        END IF;
        IF rerouted.task IN ('deliver_in_order', 'join_instance') THEN
            rerouted.instance_id := gen_random_uuid();
        END IF;
        IF rerouted.task <> 'publish' THEN
            rerouted.task := 'reroute';
        END IF;
        rerouted.attempt := 0;
        rerouted.properties := NULL;
        rerouted.enqueued_at := p_now;
        queued := queued || rerouted;
    END LOOP;
    PERFORM int_enqueue(queued);
    RETURN QUERY SELECT DISTINCT t.instance_id, t.host_id FROM unnest(taken) t;
END $$;
