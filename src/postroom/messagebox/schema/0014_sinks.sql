-- Send ports whose adapter is a Spark writer. Their messages are drained in batches by pipeline processes, so they are a
-- service class of their own, which hosts do not dequeue.

INSERT INTO management.service_classes (id, name) VALUES (128, 'spark_sinks');

-- The batches that are being written. What belongs to a batch is settled before anything of it is written, and stays so
-- whoever writes it and however often: its messages have its id as their claim. The row goes in the transaction in which
-- its messages are completed, or given back.
CREATE TABLE messagebox.sink_batches (
    batch_id   uuid PRIMARY KEY,
    number     bigint GENERATED ALWAYS AS IDENTITY,      -- for names that sort
    host_id    smallint NOT NULL REFERENCES management.hosts,
    port_id    uuid NOT NULL,
    sink       jsonb NOT NULL,                           -- the port's adapter when the batch was made
    attempt    integer NOT NULL DEFAULT 1,               -- who does not know the latest one has lost the batch to another
    opened_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (host_id, port_id)                            -- a port has one batch at a time
);

-- What waits for one sink, in the order in which it is taken; rows of other services are not in it.
CREATE INDEX work_queue_sinks ON messagebox.work_queue (service_id, priority, seq)
    WHERE claim_id IS NULL AND service_class = 128;
