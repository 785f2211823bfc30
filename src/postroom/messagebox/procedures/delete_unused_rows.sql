-- Delete rows that no statement reads any more: the transient properties and predicates of batches that are published,
-- and predicates of groups that do not exist. Returns their number, by table. Every such row that is visible is unused,
-- because a publish deletes its transient rows in its own transaction, and a group and its predicates are stored in
-- one.
CREATE OR REPLACE FUNCTION messagebox.delete_unused_rows() RETURNS TABLE (table_name text, deleted bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    WITH p AS (DELETE FROM message_properties RETURNING 1),
         q AS (DELETE FROM message_predicates RETURNING 1),
         r AS (DELETE FROM predicates
                WHERE NOT EXISTS (SELECT 1 FROM predicate_groups g WHERE g.id = predicates.group_id) RETURNING 1)
    SELECT 'message_properties', (SELECT count(*) FROM p)
    UNION ALL SELECT 'message_predicates', (SELECT count(*) FROM q)
    UNION ALL SELECT 'predicates', (SELECT count(*) FROM r);
$$;
