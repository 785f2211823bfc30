-- Sinks: send ports whose adapter is a Spark writer. Pipeline processes drain them in batches.

-- The batches that are being written. The messages of a batch are fixed before the first write and do not change when
-- another process writes the batch again: its id is their claim_id. The transaction that completes or releases them
-- deletes the row.
CREATE TABLE messagebox.sink_batches (
    batch_id   uuid PRIMARY KEY,
    number     bigint GENERATED ALWAYS AS IDENTITY,      -- for file names in the order of the batches
    host_id    smallint NOT NULL REFERENCES messagebox.hosts,
    port_id    uuid NOT NULL,
    sink       jsonb NOT NULL,                           -- adapter of the port when the batch was opened
    attempt    integer NOT NULL DEFAULT 1,               -- a writer with a lower number no longer owns the batch
    opened_at  timestamptz NOT NULL DEFAULT now(),
    written    boolean NOT NULL DEFAULT false            -- all its messages are written, and are to be completed
);
-- A port writes one batch at a time. A written one may be completed meanwhile.
CREATE UNIQUE INDEX sink_batches_port ON messagebox.sink_batches (host_id, port_id) WHERE NOT written;

-- Poison-message guard: the messages of a batch that a task has started to process after a failed task, and not
-- finished: first together with others, with zero attempts, then alone. A message that kills its worker is detected by
-- its attempts and removed from the batch.
CREATE TABLE messagebox.sink_attempts (
    batch_id  uuid NOT NULL REFERENCES messagebox.sink_batches ON DELETE CASCADE,
    seq       bigint NOT NULL,                           -- the message's number in the queue
    attempts  smallint NOT NULL DEFAULT 1,
    PRIMARY KEY (batch_id, seq)
);

-- The progress of each sink, written at the start and the end of a batch. The advisory lock of the process shows
-- whether the sinks of a host are served: a killed process leaves its rows behind.
CREATE TABLE messagebox.running_sinks (
    port_id       uuid PRIMARY KEY,
    state         text NOT NULL CHECK (state IN ('waiting', 'writing', 'failing')),
    since         timestamptz NOT NULL DEFAULT now(),        -- start of the current state
    reason        text,                                      -- why it is failing
    server        text NOT NULL,
    pid           integer NOT NULL,
    started_at    timestamptz NOT NULL DEFAULT now(),
    batches       bigint NOT NULL DEFAULT 0,                 -- batches written since the start of the process
    written       bigint NOT NULL DEFAULT 0,                 -- messages written since the start of the process
    rate          double precision NOT NULL DEFAULT 0,       -- messages per second of the last batch; 0 while it waits
    last_batch_at timestamptz,
    updated_at    timestamptz NOT NULL DEFAULT now()
);
