-- Number the claims of settled files for the stream, and store what the files were like. A file that has settled again
-- may have other contents, so attempts to receive it before do not count.
-- Indexes: primary keys of file_claims and receive_attempts. Locks: the rows.
WITH forgotten AS (DELETE FROM receive_attempts WHERE interchange_id = ANY (%(ids)s::uuid[]))
UPDATE file_claims
   SET state = 2, number = file.number, first_number = coalesce(first_number, file.number), size = file.size,
       modified_ns = file.modified_ns, inode = file.inode, problem = NULL
  FROM unnest(%(ids)s::uuid[], %(numbers)s::bigint[], %(sizes)s::bigint[], %(times)s::bigint[], %(inodes)s::bigint[])
       AS file (id, number, size, modified_ns, inode)
 WHERE interchange_id = file.id AND state = 1
