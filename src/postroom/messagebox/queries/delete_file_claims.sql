-- Delete file claims, and the attempts to receive their files alone.
-- Indexes: primary keys of file_claims and receive_attempts. Locks: the rows.
WITH attempts AS (DELETE FROM receive_attempts WHERE interchange_id = ANY (%(ids)s))
DELETE FROM file_claims WHERE interchange_id = ANY (%(ids)s)
