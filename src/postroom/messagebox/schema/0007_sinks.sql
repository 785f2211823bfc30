-- Sinks: send ports whose adapter is a Spark writer. Pipeline processes drain them in batches.

-- The batches that are being written. The messages of a batch are fixed before any of it is written, and stay so whoever writes
-- it and however often: they have its id as their claim. The row is deleted in the transaction that completes or releases them.
CREATE TABLE messagebox.sink_batches (
    batch_id   uuid PRIMARY KEY,
    number     bigint GENERATED ALWAYS AS IDENTITY,      -- for names that sort
    host_id    smallint NOT NULL REFERENCES management.hosts,
    port_id    uuid NOT NULL,
    sink       jsonb NOT NULL,                           -- the port's adapter when the batch was made
    attempt    integer NOT NULL DEFAULT 1,               -- a writer with an older attempt has lost the batch to another
    opened_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (host_id, port_id)                            -- a port has one batch at a time
);

-- Poison-message guard: the messages of a batch that a task processes alone, after tasks had failed, and has not finished with.
-- A message that kills its worker is recognised by its attempts and leaves the batch.
CREATE TABLE messagebox.sink_attempts (
    batch_id  uuid NOT NULL REFERENCES messagebox.sink_batches ON DELETE CASCADE,
    seq       bigint NOT NULL,                           -- the message's number in the queue
    attempts  smallint NOT NULL DEFAULT 1,
    PRIMARY KEY (batch_id, seq)
);

-- What each sink reports about itself, when it starts a batch and when that has ended. The advisory lock of its process shows
-- whether the sinks of a host are served at all: a process that was killed leaves its rows behind.
CREATE TABLE management.running_sinks (
    port_id       uuid PRIMARY KEY,
    state         text NOT NULL CHECK (state IN ('waiting', 'writing', 'failing')),
    since         timestamptz NOT NULL DEFAULT now(),        -- when that state began
    reason        text,                                      -- why it is failing
    server        text NOT NULL,
    pid           integer NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now(),
    batches       bigint NOT NULL DEFAULT 0,                 -- batches written since the process was started
    written       bigint NOT NULL DEFAULT 0,                 -- and messages
    last_batch_at timestamptz,
    updated_at    timestamptz NOT NULL DEFAULT now()
);
