-- Store an interchange in the inbox. Does nothing if it is already there, or if it has an idempotency key and was
-- published before: the stream would find its receipt and drop the body.
-- Indexes: primary keys of inbox and receipts.
INSERT INTO inbox (interchange_id, location_id, context, size, digest, body)
SELECT %(id)s::uuid, %(location_id)s::uuid, %(context)s::jsonb, %(size)s::bigint, %(digest)b::bytea, %(body)b::bytea
 WHERE %(digest)b::bytea IS NULL OR NOT EXISTS (SELECT 1 FROM read_receipts(ARRAY[%(id)s::uuid]))
ON CONFLICT (interchange_id) DO NOTHING
