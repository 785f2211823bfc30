-- Store interchanges of one location in the inbox. Returns the ids of those that are new. One with an idempotency key
-- is left out if it is already there, or was published before: the stream would find its receipt and drop the body.
-- Indexes: primary keys of inbox and receipts. Waits for other transactions that insert the same keys, in the order of
-- the ids, so that two of these statements cannot wait for each other.
INSERT INTO inbox (interchange_id, location_id, context, size, digest, body)
SELECT id, %s::uuid, context::jsonb, octet_length(body), digest, body
  FROM unnest(%b::uuid[], %b::text[], %b::bytea[], %b::bytea[]) WITH ORDINALITY
       AS new (id, context, digest, body, position)
 WHERE digest IS NULL OR NOT EXISTS (SELECT 1 FROM read_receipts(ARRAY[id]))
 ORDER BY CASE WHEN digest IS NOT NULL THEN id END NULLS FIRST, position
ON CONFLICT (interchange_id) DO NOTHING
RETURNING interchange_id
