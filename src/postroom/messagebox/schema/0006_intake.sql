-- Intake: what receive locations have accepted and not yet published, and what proves that it was published.

-- What was published, for days: a unit of work that comes again finds its receipt and is left out.
CREATE TABLE messagebox.receipts (
    unit          uuid NOT NULL,                             -- an interchange, a split of a bulk file, a partition of a stream
    chunk         integer NOT NULL DEFAULT 0,                -- a large unit is published in chunks
    published_at  timestamptz NOT NULL DEFAULT now(),
    outcome       jsonb NOT NULL DEFAULT '{}',               -- what the publish came to
    PRIMARY KEY (unit, chunk)
);
-- The job that deletes old receipts.
CREATE INDEX ON messagebox.receipts (published_at);

-- The files that receive locations have claimed and not yet finished. They keep their location from being removed: a claim locks
-- the location's row (KEY SHARE) until it is committed, and a removal that comes first makes it fail.
CREATE TABLE messagebox.file_claims (
    interchange_id  uuid PRIMARY KEY,
    number          bigint,                                  -- the stream's offset; given when the claim is complete
    location_id     uuid NOT NULL CONSTRAINT file_claims_location REFERENCES management.receive_locations,
    name            text NOT NULL,                           -- of the file, as it was dropped
    path            text NOT NULL,                           -- where it is now
    size            bigint,
    modified_ns     bigint,
    inode           bigint,                                  -- a task reads no other file; null: not complete, or senders are trusted
    state           smallint NOT NULL DEFAULT 1,             -- 1 claiming, 2 claimed, 3 published, 4 missing, 5 failed
    problem         text,                                    -- why it failed
    claimed_at      timestamptz NOT NULL DEFAULT now(),
    -- How a bulk file is read, fixed when it is first read: format, options, schema, sizes of splits and chunks, and Spark's
    -- settings. A restart with other settings or cores reads it in the same way.
    reading         jsonb,
    -- Poison-message guard: attempts to process the interchange alone that did not finish, and the start of PostgreSQL since when
    -- they count. After a restart they count from zero, because a task that lost its connection could not undo its attempt.
    attempts        smallint NOT NULL DEFAULT 0,
    attempts_since  timestamptz,
    place           bigint                                   -- of an ordered location: the first number, kept when it is numbered again
);
-- The reader of a location reads by number. A location has few file claims without one.
CREATE UNIQUE INDEX ON messagebox.file_claims (location_id, number);
CREATE SEQUENCE messagebox.file_claim_number;

-- The splits of claimed bulk files that a task has started. The progress of each is in its unit's receipts.
CREATE TABLE messagebox.splits (
    unit            uuid PRIMARY KEY,
    interchange_id  uuid NOT NULL REFERENCES messagebox.file_claims ON DELETE CASCADE,
    start           bigint NOT NULL,
    length          bigint NOT NULL
);
-- The splits of a file; and for the cascade.
CREATE INDEX ON messagebox.splits (interchange_id);

-- What one-way adapters have accepted and the stream of their location has not yet published. A row gets its number from the one
-- reader of its location, after it was committed: so no row can commit behind a number that was read already.
CREATE TABLE messagebox.inbox (
    interchange_id  uuid PRIMARY KEY,
    location_id     uuid NOT NULL CONSTRAINT inbox_location REFERENCES management.receive_locations,
    number          bigint,                                  -- the stream's offset
    context         jsonb NOT NULL,                          -- the properties that the adapter wrote
    size            bigint NOT NULL,
    body            bytea,                                   -- null: the content is in inbox_fragments
    problem         text,                                    -- why it was quarantined
    handed_over_at  timestamptz NOT NULL DEFAULT now(),
    handed_over_by  text NOT NULL DEFAULT session_user,      -- from the login: cannot be forged
    attempts        smallint NOT NULL DEFAULT 0,             -- as in file_claims
    attempts_since  timestamptz
);
-- The reader of a location reads by number.
CREATE UNIQUE INDEX ON messagebox.inbox (location_id, number);
-- The reader looks for new rows several times a second.
CREATE INDEX inbox_new ON messagebox.inbox (location_id, handed_over_at) WHERE number IS NULL AND problem IS NULL;
CREATE SEQUENCE messagebox.inbox_number;

-- The content of large rows of the inbox, in pieces.
CREATE TABLE messagebox.inbox_fragments (
    interchange_id  uuid NOT NULL REFERENCES messagebox.inbox ON DELETE CASCADE,
    number          integer NOT NULL,
    body            bytea NOT NULL,
    PRIMARY KEY (interchange_id, number)
);
-- As for parts: bodies are not compressed.
ALTER TABLE messagebox.inbox ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE messagebox.inbox_fragments ALTER COLUMN body SET STORAGE EXTERNAL;

-- Streams of rows (Kafka and the like), whose offsets only Spark's checkpoint knows. The MessageBox remembers that a stream was
-- started, and with which checkpoint, so that a driver that does not find the checkpoint refuses to start from the beginning.
CREATE TABLE messagebox.streams (
    location_id        uuid PRIMARY KEY REFERENCES management.receive_locations ON DELETE CASCADE,
    checkpoint_id      uuid NOT NULL,
    batch              bigint NOT NULL DEFAULT -1,           -- the newest batch that was started
    partitions         integer NOT NULL DEFAULT 0,           -- of that batch: a replay has to have as many
    restart_requested  boolean NOT NULL DEFAULT false,       -- an operator wants it to start with a new checkpoint
    started_at         timestamptz NOT NULL DEFAULT now()
);

-- The partitions of the newest batch of each stream. That batch may come again, however long its stream stands still, so
-- the receipts of these units are not purged.
CREATE TABLE messagebox.stream_units (
    unit         uuid PRIMARY KEY,
    location_id  uuid NOT NULL REFERENCES messagebox.streams ON DELETE CASCADE
);
-- The units of a stream, when its next batch starts; and for the cascade.
CREATE INDEX ON messagebox.stream_units (location_id);

-- What each running receive location reports about itself, once a second at most and only when something changed. Its advisory
-- lock shows whether it runs at all: a process that was killed leaves its row behind.
CREATE TABLE management.running_locations (
    location_id    uuid PRIMARY KEY,
    state          text NOT NULL CHECK (state IN ('starting', 'receiving', 'throttled', 'failing')),
    since          timestamptz NOT NULL DEFAULT now(),        -- when that state began
    reason         text,                                      -- why it is throttled or failing
    server         text NOT NULL,
    pid            integer NOT NULL,
    started_at     timestamptz NOT NULL DEFAULT now(),
    rows           bigint NOT NULL DEFAULT 0,                 -- messages published since it was started
    suspended      bigint NOT NULL DEFAULT 0,                 -- and suspended
    rate           double precision NOT NULL DEFAULT 0,       -- messages a second, of late
    remaining      bigint,                                    -- what is still to be read, in remaining_unit
    remaining_unit text,                                      -- files, interchanges, bytes, rows
    last_batch_at  timestamptz,
    updated_at     timestamptz NOT NULL DEFAULT now()
);
