-- Remove one attempt to receive an interchange alone, and the row with the last one.
-- Index: primary key of receive_attempts. Locks: the row.
WITH last AS (DELETE FROM receive_attempts WHERE interchange_id = %(id)s AND attempts <= 1)
UPDATE receive_attempts SET attempts = attempts - 1 WHERE interchange_id = %(id)s AND attempts > 1
