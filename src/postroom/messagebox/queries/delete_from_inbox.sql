-- Delete rows of the inbox whose messages are committed, and keep their digests with their receipts.
-- Indexes: primary keys of inbox and receipts. Locks: the rows.
WITH deleted AS (
    DELETE FROM inbox WHERE interchange_id = ANY (%b) RETURNING interchange_id, digest
)
SELECT record_digests(array_agg(interchange_id), array_agg(digest)) FROM deleted WHERE digest IS NOT NULL
