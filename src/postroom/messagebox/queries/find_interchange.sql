-- A row if an interchange is in the inbox or has a receipt. Indexes: primary keys of inbox and receipts.
SELECT 1 FROM inbox WHERE interchange_id = %(id)s
UNION ALL
SELECT 1 FROM read_receipts(ARRAY[%(id)s::uuid])
LIMIT 1
