-- Which messages of a sink's batch a task has begun alone, after tasks had failed, and has not come to an end with: one that
-- ends its worker is known by that, and leaves the batch. Notes go with their batch.
CREATE TABLE messagebox.sink_notes (
    batch_id  uuid NOT NULL REFERENCES messagebox.sink_batches ON DELETE CASCADE,
    seq       bigint NOT NULL,                               -- the message's number in the queue
    begun     smallint NOT NULL DEFAULT 1,                   -- how often
    PRIMARY KEY (batch_id, seq)
);
