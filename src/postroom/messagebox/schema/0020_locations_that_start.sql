-- A location whose stream has not answered yet is not one that receives.
ALTER TABLE management.running_locations
    DROP CONSTRAINT running_locations_state_check,
    ADD CONSTRAINT running_locations_state_check CHECK (state IN ('starting', 'receiving', 'throttled', 'failing'));
