-- Record that files are about to be moved into the private folder of their location.
-- Index: primary key of file_claims. Locks: none.
INSERT INTO file_claims (interchange_id, location_id, name, path)
SELECT id, %s, name, path FROM unnest(%s::uuid[], %s::text[], %s::text[]) AS file (id, name, path)
