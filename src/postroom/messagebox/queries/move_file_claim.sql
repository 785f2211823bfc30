-- Point a claim to its restored file, which is another inode, and may have a less exact time.
-- Index: primary key of file_claims. Locks: the row.
UPDATE messagebox.file_claims
   SET path = {path}, inode = CASE WHEN inode IS NOT NULL THEN {inode} END,
       modified_ns = CASE modified_ns WHEN {modified_before} THEN {modified_now} ELSE modified_ns END
 WHERE interchange_id = {interchange_id};
