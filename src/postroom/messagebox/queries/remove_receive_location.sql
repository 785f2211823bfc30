-- A receive location goes, and with it the file claims for which there is nothing left to do: of files that vanished, and of those
-- that are kept aside after they were published. Any other claim, and anything in its inbox, lets this fail.
-- Indexes: receive_locations by name, file_claims and inbox by location. Locks: the rows.
WITH finished AS (
    DELETE FROM file_claims c
     USING receive_locations l
     WHERE l.name = %(name)s AND c.location_id = l.id AND (c.state = 4 OR c.state = 3 AND c.path ~ '/kept/[^/]*$')
)
DELETE FROM receive_locations WHERE name = %(name)s
