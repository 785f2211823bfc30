-- Delete rows of the inbox whose messages are committed, with the attempts to receive them alone. Their digests are
-- kept with their receipts. Indexes: primary keys of inbox, receive_attempts and receipts. Locks: the rows.
WITH attempts AS (
    DELETE FROM receive_attempts WHERE interchange_id = ANY (%(ids)b)
), deleted AS (
    DELETE FROM inbox WHERE interchange_id = ANY (%(ids)b) RETURNING interchange_id, digest
)
SELECT record_digests(array_agg(interchange_id), array_agg(digest)) FROM deleted WHERE digest IS NOT NULL
