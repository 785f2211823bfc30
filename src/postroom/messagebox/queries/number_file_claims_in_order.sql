-- Number the claims of settled files of an ordered location: first those that had a number before, by that number, then
-- new ones in the given order. A claim that comes after an unsettled claim with a first number gets no number, so that
-- it does not overtake that one. The caller has locked the order of the location (7004) by an earlier statement, so
-- that this one sees every claim that was reset until then. Attempts before do not count: a file that has settled again
-- may have other contents.
-- Indexes: file_claims by location and number, primary keys. Locks: the rows.
WITH forgotten AS (
    DELETE FROM receive_attempts WHERE interchange_id = ANY (%(ids)s::uuid[])
), given AS (
    SELECT c.interchange_id, c.first_number, file.size, file.modified_ns, file.inode, file.turn
      FROM unnest(%(ids)s::uuid[], %(sizes)s::bigint[], %(times)s::bigint[], %(inodes)s::bigint[])
           WITH ORDINALITY AS file (id, size, modified_ns, inode, turn)
      JOIN file_claims c ON c.interchange_id = file.id
     WHERE c.state = 1
), before AS (
    SELECT min(first_number) AS first_number
      FROM file_claims
     WHERE location_id = %(location_id)s AND state = 1 AND first_number IS NOT NULL
       AND interchange_id <> ALL (%(ids)s::uuid[])
), numbered AS (
    SELECT interchange_id, size, modified_ns, inode, nextval('intake_number') AS number
      FROM (SELECT given.*
              FROM given, before
             WHERE before.first_number IS NULL OR given.first_number < before.first_number
             ORDER BY given.first_number NULLS LAST, given.turn) AS in_order
)
UPDATE file_claims c
   SET state = 2, number = n.number, first_number = coalesce(c.first_number, n.number), size = n.size,
       modified_ns = n.modified_ns, inode = n.inode, problem = NULL
  FROM numbered n
 WHERE c.interchange_id = n.interchange_id
RETURNING c.interchange_id
