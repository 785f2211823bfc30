-- When a receive location takes in messages, as application/schedule.py reads it; null: always.
ALTER TABLE management.receive_locations ADD COLUMN schedule jsonb;
