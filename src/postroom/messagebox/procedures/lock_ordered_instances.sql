-- Lock the order of instances that receive their messages in the order of publishing: ordered send ports (the id of the
-- port), and instances with ordered subscriptions. A publish calls it last, after all other locks and before it draws
-- the numbers of the rows of these instances. So rows of one instance are committed in the order of their numbers, and
-- a transaction that sees a number sees all lower ones.
-- Locks: advisory (7005, hash of the instance), until commit, in ascending order of the hashes.
CREATE OR REPLACE FUNCTION messagebox.lock_ordered_instances(p_instance_ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    lock_number integer;
BEGIN
    FOR lock_number IN SELECT DISTINCT uuid_hash(i) FROM unnest(p_instance_ids) i ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(7005, lock_number);
    END LOOP;
END $$;
