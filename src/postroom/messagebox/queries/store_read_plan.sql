-- Store how files are read, and their size and time, before the first of them is read. A stored plan is not changed.
-- Index: primary key of file_claims. Locks: the rows.
UPDATE file_claims
   SET reading = jsonb_build_object('plan', %s::jsonb, 'size', size, 'modified_ns', modified_ns)
 WHERE interchange_id = ANY (%s) AND state = 2 AND reading IS NULL
RETURNING interchange_id, reading
