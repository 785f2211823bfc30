-- Files that Spark's own readers split over many tasks.

-- How a claimed file is read, fixed when it is first begun: format, options, schema, size of a split and of a chunk, and
-- the settings of Spark that have a say in it. A restart with other settings or cores reads it as it was begun.
ALTER TABLE messagebox.claims ADD COLUMN reading jsonb;

-- The splits of claimed files that a task has begun. How far each has come is in its unit's receipts.
CREATE TABLE messagebox.splits (
    unit            uuid PRIMARY KEY,
    interchange_id  uuid NOT NULL REFERENCES messagebox.claims ON DELETE CASCADE,
    start           bigint NOT NULL,
    length          bigint NOT NULL
);
CREATE INDEX ON messagebox.splits (interchange_id);          -- the splits of a file; and for the cascade
