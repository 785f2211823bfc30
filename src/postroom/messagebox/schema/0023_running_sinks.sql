-- What each sink that is drained says of itself, when it begins a batch and when that has ended. Whether a process serves
-- the sinks of a host at all, its advisory lock tells: a process that was killed leaves its rows behind.
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
