-- Remove instances: after this commit no message is routed to them, and the values of their convoys are free for the
-- next instances (ORC-25). Waits for publishes that have already found them. Rows are deleted later
-- (purge_subscriptions).
-- Indexes: subscriptions_instance, convoy_set_instances_instance. Locks: the rows, FOR UPDATE, subscriptions first, as
-- the streaming lane locks them. A publisher of the direct lane locks convoys before instance subscriptions. If one
-- message goes to a convoy and to an instance subscription of the same instance, the two may deadlock (40P01), and
-- transaction() repeats one of them.
CREATE OR REPLACE FUNCTION messagebox.int_remove_instances(p_host_id smallint, p_instance_ids uuid[], p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM 1 FROM subscriptions WHERE instance_id = ANY (p_instance_ids) AND host_id = p_host_id AND removed_at IS NULL
      ORDER BY id FOR UPDATE;
    IF FOUND THEN
        UPDATE subscriptions SET removed_at = p_now
         WHERE instance_id = ANY (p_instance_ids) AND host_id = p_host_id AND removed_at IS NULL;
    END IF;
    PERFORM 1 FROM convoy_set_instances c JOIN convoy_sets s ON s.id = c.convoy_set_id
      WHERE c.instance_id = ANY (p_instance_ids) AND s.host_id = p_host_id
      ORDER BY c.convoy_set_id, c.digest FOR UPDATE OF c;
    IF FOUND THEN
        DELETE FROM convoy_set_instances c USING convoy_sets s
         WHERE s.id = c.convoy_set_id AND c.instance_id = ANY (p_instance_ids) AND s.host_id = p_host_id;
    END IF;
END $$;
