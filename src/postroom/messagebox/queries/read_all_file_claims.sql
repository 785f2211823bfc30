-- All claimed files, for a backup.
SELECT interchange_id, location_id, path, inode, state FROM messagebox.file_claims ORDER BY interchange_id
