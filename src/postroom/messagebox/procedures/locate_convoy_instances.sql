-- For matches of activation subscriptions with a convoy set, return the instance that already has these values, or else
-- assign them to the new instance that the publisher offers (ORC-20). Two publishers with the same new key meet at the
-- primary key: the second waits for the first and joins its instance (ORC-22). Numbers are positions in the arrays.
-- With p_find_running, say whether an instance was there before and none of its messages is suspended: a stopped
-- orchestration continues those (ORS-03).
-- Indexes: convoy_set_instances' primary key, and keys are locked in its order; orchestration_instances' primary key,
-- work_queue_instance, suspended_queue_instance. Locks: advisory (7001, 0) shared; the rows of
-- the instances, FOR KEY SHARE, which their completion waits for.
CREATE OR REPLACE FUNCTION messagebox.locate_convoy_instances(
    p_convoy_set_ids integer[], p_values_1 text[], p_values_2 text[], p_values_3 text[], p_instance_ids uuid[],
    p_find_running boolean, p_now timestamptz DEFAULT now()
) RETURNS TABLE (number bigint, instance_id uuid, is_running boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = messagebox, management, pg_temp SET enable_seqscan = off AS $$
DECLARE
    digests bytea[];
    keys bigint;
    locked bigint;
BEGIN
    PERFORM lock_routing();
    SELECT array_agg(sha256(convert_to(jsonb_build_array(g.value_1, g.value_2, g.value_3)::text, 'UTF8'))
                     ORDER BY g.number)
      INTO digests
      FROM unnest(p_values_1, p_values_2, p_values_3) WITH ORDINALITY AS g (value_1, value_2, value_3, number);
    keys := (SELECT count(*) FROM (SELECT DISTINCT g.* FROM unnest(p_convoy_set_ids, digests) AS g) k);
    LOOP
        INSERT INTO convoy_set_instances (convoy_set_id, digest, value_1, value_2, value_3, instance_id, created_at)
        SELECT DISTINCT ON (g.convoy_set_id, g.digest) g.convoy_set_id, g.digest, g.value_1, g.value_2, g.value_3,
               g.instance_id, p_now
          FROM unnest(p_convoy_set_ids, digests, p_values_1, p_values_2, p_values_3, p_instance_ids) WITH ORDINALITY
               AS g (convoy_set_id, digest, value_1, value_2, value_3, instance_id, number)
         ORDER BY g.convoy_set_id, g.digest, g.number
        ON CONFLICT DO NOTHING;
        SELECT count(*) INTO locked
          FROM (SELECT 1 FROM convoy_set_instances c
                 WHERE (c.convoy_set_id, c.digest) IN (SELECT * FROM unnest(p_convoy_set_ids, digests))
                 ORDER BY c.convoy_set_id, c.digest FOR KEY SHARE OF c) l;
        EXIT WHEN locked = keys;      -- else an instance completed between the two statements: its key is free again
    END LOOP;
    RETURN QUERY
    SELECT g.number, c.instance_id,
           p_find_running
           AND (EXISTS (SELECT 1 FROM orchestration_instances i WHERE i.instance_id = c.instance_id)
                OR EXISTS (SELECT 1 FROM work_queue w WHERE w.instance_id = c.instance_id AND w.task = 'join_instance'))
           AND NOT EXISTS (SELECT 1 FROM suspended_queue s WHERE s.instance_id = c.instance_id)
      FROM unnest(p_convoy_set_ids, digests) WITH ORDINALITY AS g (convoy_set_id, digest, number)
      JOIN convoy_set_instances c ON c.convoy_set_id = g.convoy_set_id AND c.digest = g.digest;
END $$;
