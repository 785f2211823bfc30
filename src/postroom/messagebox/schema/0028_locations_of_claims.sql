-- What a receive location has taken in keeps the location: whoever takes in holds its row (KEY SHARE) until that is
-- committed, and a removal that comes first makes it fail. Not validated: rows of locations that are gone may be there, and
-- are kept; postroom check tells of them. No index is needed for a removal, claims and inbox have one by location.
ALTER TABLE messagebox.claims ADD CONSTRAINT claims_location
    FOREIGN KEY (location_id) REFERENCES management.receive_locations NOT VALID;
ALTER TABLE messagebox.inbox ADD CONSTRAINT inbox_location
    FOREIGN KEY (location_id) REFERENCES management.receive_locations NOT VALID;

-- Of claims there is nothing left to do for files that vanished, and for those that are kept aside after they were published.
DELETE FROM messagebox.claims c
 WHERE (state = 4 OR state = 3 AND path ~ '/kept/[^/]*$')
   AND NOT EXISTS (SELECT 1 FROM management.receive_locations l WHERE l.id = c.location_id);
