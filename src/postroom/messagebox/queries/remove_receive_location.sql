-- Delete a receive location, with the file claims of missing files and of published files in the folder kept/. Nothing
-- is left to do for these. Any other file claim, and any row in the inbox, makes this statement fail.
-- Indexes: receive_locations by name, file_claims and inbox by location. Locks: the rows.
WITH finished AS (
    DELETE FROM file_claims c
     USING receive_locations l
     WHERE l.name = %(name)s AND c.location_id = l.id AND (c.state = 4 OR c.state = 3 AND c.path ~ '/kept/[^/]*$')
)
DELETE FROM receive_locations WHERE name = %(name)s
