-- Streams of rows, whose offsets only Spark's checkpoint knows: the MessageBox remembers that one has begun, and with which
-- checkpoint, so that a driver that does not find it does not begin anew without a word.
CREATE TABLE messagebox.streams (
    location_id    uuid PRIMARY KEY REFERENCES management.receive_locations ON DELETE CASCADE,
    checkpoint_id  uuid NOT NULL,
    batch          bigint NOT NULL DEFAULT -1,               -- the newest that was begun
    partitions     integer NOT NULL DEFAULT 0,               -- of that batch: a replay has to have as many
    anew           boolean NOT NULL DEFAULT false,           -- somebody wants it to begin anew at its next start
    begun_at       timestamptz NOT NULL DEFAULT now()
);

-- The partitions of the newest batch of each stream. That batch may come again, however long its stream stands still, so
-- that the receipts of these units are kept.
CREATE TABLE messagebox.stream_units (
    unit         uuid PRIMARY KEY,
    location_id  uuid NOT NULL REFERENCES messagebox.streams ON DELETE CASCADE
);
CREATE INDEX ON messagebox.stream_units (location_id);       -- those of a stream, when its next batch begins; the cascade
