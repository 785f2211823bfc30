-- How often a task has begun on an interchange alone, after tasks had failed, and never come to an end: one that ends its
-- worker is known by that, and is suspended. No index: it is read and written by the primary key.
ALTER TABLE messagebox.claims ADD COLUMN begun smallint NOT NULL DEFAULT 0;
ALTER TABLE messagebox.inbox ADD COLUMN begun smallint NOT NULL DEFAULT 0;
