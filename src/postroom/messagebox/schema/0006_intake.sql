-- Intake: the files and interchanges that receive locations have accepted and not yet published, and the receipts of
-- the published ones.

-- Receipts of published units of work, kept for days. A unit that is processed again finds its receipt and is skipped.
CREATE TABLE messagebox.receipts (
    -- An interchange, a split of a bulk file, a partition of a stream.
    unit          uuid NOT NULL,
    chunk         integer NOT NULL DEFAULT 0,                -- a large unit is published in chunks
    published_at  timestamptz NOT NULL DEFAULT now(),
    outcome       jsonb NOT NULL DEFAULT '{}',               -- the result of the publish
    -- Of the messages or the body that came with an idempotency key.
    digest        bytea,
    PRIMARY KEY (unit, chunk)
);
-- The job that deletes old receipts.
CREATE INDEX ON messagebox.receipts (published_at);

-- The responses to requests that came with an idempotency key, in fragments. A caller that repeats its request gets the
-- same response. They are deleted with their receipts.
CREATE TABLE messagebox.stored_responses (
    unit          uuid NOT NULL,
    number        integer NOT NULL,
    chunk         integer NOT NULL DEFAULT 0,
    host_id       smallint NOT NULL REFERENCES messagebox.hosts,
    content_type  text,                                      -- null: the request could not be answered
    body          bytea NOT NULL,
    PRIMARY KEY (unit, number, host_id),                     -- a host cannot take the place of another one's response
    FOREIGN KEY (unit, chunk) REFERENCES messagebox.receipts ON DELETE CASCADE
);

-- One row: the time by which receipts get old. It advances while a host runs, and never by a step of the server's
-- clock.
CREATE TABLE messagebox.receipt_clock (
    trusted_at  timestamptz NOT NULL
);
INSERT INTO messagebox.receipt_clock VALUES (now());

-- The files that receive locations have claimed and not yet finished. They prevent the removal of their location.
CREATE TABLE messagebox.file_claims (
    interchange_id  uuid PRIMARY KEY,
    -- The stream's offset; assigned when the file claim is complete.
    number          bigint,
    location_id     uuid NOT NULL CONSTRAINT file_claims_location
                    REFERENCES messagebox.services (location_id),
    name            text NOT NULL,                           -- name of the received file
    path            text NOT NULL,                           -- current path of the file
    size            bigint,
    modified_ns     bigint,
    -- The only inode a task reads; null: incomplete, or senders are trusted.
    inode           bigint,
    state           smallint NOT NULL DEFAULT 1,             -- 1 claiming, 2 claimed, 3 published, 4 missing, 5 failed
    problem         text,                                    -- why it failed
    claimed_at      timestamptz NOT NULL DEFAULT now(),
    -- The read plan of a bulk file, fixed when it is first read: format, options, schema, sizes of splits and chunks,
    -- and Spark's settings. A restart with other settings or another number of cores reads the file in the same way.
    reading         jsonb,
    first_number    bigint                                   -- ordered location: kept when the number changes
);
-- The reader of a location reads by number. A location has few file claims without a number.
CREATE UNIQUE INDEX ON messagebox.file_claims (location_id, number);

-- The splits of claimed bulk files that a task has started. The progress of a split is in the receipts of its unit.
CREATE TABLE messagebox.splits (
    unit            uuid PRIMARY KEY,
    interchange_id  uuid NOT NULL REFERENCES messagebox.file_claims ON DELETE CASCADE,
    start           bigint NOT NULL,
    length          bigint NOT NULL
);
-- The splits of a file, and the cascade.
CREATE INDEX ON messagebox.splits (interchange_id);

-- The interchanges that one-way adapters have accepted and that the stream of their location has not yet published. The
-- only reader of a location numbers its rows after they are committed. So no row with a lower number becomes visible
-- later.
CREATE TABLE messagebox.inbox (
    interchange_id  uuid PRIMARY KEY,
    location_id     uuid NOT NULL CONSTRAINT inbox_location
                    REFERENCES messagebox.services (location_id),
    number          bigint,                                  -- the stream's offset
    context         jsonb NOT NULL,                          -- the properties that the adapter wrote
    size            bigint NOT NULL,
    body            bytea,                                   -- null: the content is in inbox_fragments
    digest          bytea,                                   -- of a body that came with an idempotency key
    problem         text,                                    -- why it was quarantined
    stored_at       timestamptz NOT NULL DEFAULT now(),
    stored_by       text NOT NULL DEFAULT session_user       -- the login; it cannot be forged
);
-- The reader of a location reads by number.
CREATE UNIQUE INDEX ON messagebox.inbox (location_id, number);
-- The reader polls for new rows several times a second.
CREATE INDEX inbox_new ON messagebox.inbox (location_id, stored_at) WHERE number IS NULL AND problem IS NULL;

-- The numbers of file claims and of rows of the inbox.
CREATE SEQUENCE messagebox.intake_number;

-- The content of large rows of the inbox, in fragments.
CREATE TABLE messagebox.inbox_fragments (
    interchange_id  uuid NOT NULL REFERENCES messagebox.inbox ON DELETE CASCADE,
    number          integer NOT NULL,
    body            bytea NOT NULL,
    PRIMARY KEY (interchange_id, number)
);
-- Bodies are not compressed, as in parts.
ALTER TABLE messagebox.inbox ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE messagebox.stored_responses ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE messagebox.inbox_fragments ALTER COLUMN body SET STORAGE EXTERNAL;

-- Poison-message guard: the number of unfinished attempts to receive an interchange alone, because a process or worker
-- before was killed while it received, and the start time of PostgreSQL when they were counted. A restart of PostgreSQL
-- resets them, because a task without a connection cannot undo its attempt.
CREATE TABLE messagebox.receive_attempts (
    interchange_id  uuid PRIMARY KEY,
    location_id     uuid NOT NULL REFERENCES messagebox.services (location_id),
    attempts        smallint NOT NULL,
    attempts_since  timestamptz NOT NULL
);
-- Removing the location.
CREATE INDEX ON messagebox.receive_attempts (location_id);

-- Streams of rows (Kafka, for example), whose offsets are only in Spark's checkpoint. The MessageBox stores the
-- checkpoint with which a stream was started. A driver that does not find this checkpoint fails instead of starting
-- from the beginning.
CREATE TABLE messagebox.streams (
    location_id        uuid PRIMARY KEY REFERENCES messagebox.services (location_id),
    checkpoint_id      uuid NOT NULL,
    batch              bigint NOT NULL DEFAULT -1,           -- the newest batch that was started
    partitions         integer NOT NULL DEFAULT 0,           -- of that batch; a replay must have the same number
    reset_requested    boolean NOT NULL DEFAULT false,       -- an operator requested a new checkpoint
    started_at         timestamptz NOT NULL DEFAULT now()
);

-- The partitions of the newest batch of each stream. Spark may replay this batch even after a long stop, so the
-- receipts of these units are not purged.
CREATE TABLE messagebox.stream_units (
    unit         uuid PRIMARY KEY,
    location_id  uuid NOT NULL REFERENCES messagebox.streams ON DELETE CASCADE
);
-- The units of a stream, when its next batch starts, and the cascade.
CREATE INDEX ON messagebox.stream_units (location_id);

-- The progress of each running receive location. It is written at most once a second, and only if something changed.
-- The advisory lock of the location shows whether it is running: a killed process leaves its row behind.
CREATE TABLE messagebox.running_locations (
    location_id    uuid PRIMARY KEY,
    state          text NOT NULL CHECK (state IN ('starting', 'receiving', 'throttled', 'failing')),
    since          timestamptz NOT NULL DEFAULT now(),        -- start of the current state
    reason         text,                                      -- why it is throttled or failing
    server         text NOT NULL,
    pid            integer NOT NULL,
    started_at     timestamptz NOT NULL DEFAULT now(),
    rows           bigint NOT NULL DEFAULT 0,                 -- messages published since the start
    suspended      bigint NOT NULL DEFAULT 0,                 -- messages suspended since the start
    rate           double precision NOT NULL DEFAULT 0,       -- messages a second, recently
    remaining      bigint,                                    -- number of remaining_unit that are not read yet
    remaining_unit text,                                      -- files, interchanges, bytes, rows
    last_batch_at  timestamptz,
    updated_at     timestamptz NOT NULL DEFAULT now()
);
