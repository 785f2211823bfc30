-- The digest of an interchange that is in the inbox or has a receipt. Null if it came without an idempotency key.
-- Indexes: primary keys of inbox and receipts.
SELECT digest FROM inbox WHERE interchange_id = %(id)s
UNION ALL
SELECT digest FROM read_receipts(ARRAY[%(id)s::uuid])
LIMIT 1
