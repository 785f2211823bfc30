-- Claims of an ordered location that have settled get their numbers: those that had one before by their places, then new
-- ones in the order given. What stands behind a claim that has a place and has not settled gets none; nothing passes it.
-- The caller holds the lock of the location's order (7004), taken by a statement before this one: what was taken back
-- until then is seen here. Indexes: file_claims by location and number, primary key. Locks: the rows.
WITH given AS (
    SELECT c.interchange_id, c.place, file.size, file.modified_ns, file.inode, file.turn
      FROM unnest(%(ids)s::uuid[], %(sizes)s::bigint[], %(times)s::bigint[], %(inodes)s::bigint[])
           WITH ORDINALITY AS file (id, size, modified_ns, inode, turn)
      JOIN file_claims c ON c.interchange_id = file.id
     WHERE c.state = 1
), before AS (
    SELECT min(place) AS place
      FROM file_claims
     WHERE location_id = %(location_id)s AND state = 1 AND place IS NOT NULL AND interchange_id <> ALL (%(ids)s::uuid[])
), numbered AS (
    SELECT interchange_id, size, modified_ns, inode, nextval('file_claim_number') AS number
      FROM (SELECT given.*
              FROM given, before
             WHERE before.place IS NULL OR given.place < before.place
             ORDER BY given.place NULLS LAST, given.turn) AS in_order
)
UPDATE file_claims c
   SET state = 2, number = n.number, place = coalesce(c.place, n.number), size = n.size, modified_ns = n.modified_ns,
       inode = n.inode, problem = NULL, attempts = 0
  FROM numbered n
 WHERE c.interchange_id = n.interchange_id
RETURNING c.interchange_id
