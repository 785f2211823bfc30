-- Hand-over from one-way adapters that are no sources of Spark, and how the receive locations that run are getting on.

-- What an adapter has accepted and the stream of its location has not yet published. A row has its number from the one
-- reader of its location, after it was committed: so no row can commit behind a number that was read already.
CREATE TABLE messagebox.inbox (
    interchange_id  uuid PRIMARY KEY,
    location_id     uuid NOT NULL,
    number          bigint,                                  -- the stream's offset
    context         jsonb NOT NULL,                          -- what the adapter writes about it
    size            bigint NOT NULL,
    body            bytea,                                   -- null: the content stands in inbox_fragments
    problem         text,                                    -- why the stream has put it aside
    handed_over_at  timestamptz NOT NULL DEFAULT now(),
    handed_over_by  text NOT NULL DEFAULT session_user       -- from the login: cannot be forged
);
CREATE UNIQUE INDEX ON messagebox.inbox (location_id, number);
-- For the reader, who looks for new rows several times a second.
CREATE INDEX inbox_new ON messagebox.inbox (location_id, handed_over_at) WHERE number IS NULL AND problem IS NULL;
CREATE SEQUENCE messagebox.inbox_number;

CREATE TABLE messagebox.inbox_fragments (
    interchange_id  uuid NOT NULL REFERENCES messagebox.inbox ON DELETE CASCADE,
    number          integer NOT NULL,
    body            bytea NOT NULL,
    PRIMARY KEY (interchange_id, number)
);
ALTER TABLE messagebox.inbox ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE messagebox.inbox_fragments ALTER COLUMN body SET STORAGE EXTERNAL;

-- What each receive location that runs says of itself, once a second at most and only when something changed. Whether
-- it runs at all, its advisory lock tells: a process that was killed leaves its row behind.
CREATE TABLE management.running_locations (
    location_id    uuid PRIMARY KEY,
    state          text NOT NULL CHECK (state IN ('receiving', 'throttled', 'failing')),
    since          timestamptz NOT NULL DEFAULT now(),        -- when that state began
    reason         text,                                      -- why it is throttled or failing
    server         text NOT NULL,
    pid            integer NOT NULL,
    started_at     timestamptz NOT NULL DEFAULT now(),
    rows           bigint NOT NULL DEFAULT 0,                 -- messages published since it was started
    suspended      bigint NOT NULL DEFAULT 0,
    rate           double precision NOT NULL DEFAULT 0,       -- messages a second, of late
    remaining      bigint,                                    -- what is still to be read, in remaining_unit
    remaining_unit text,                                      -- files, interchanges, bytes, rows
    last_batch_at  timestamptz,
    updated_at     timestamptz NOT NULL DEFAULT now()
);
