-- Since when PostgreSQL had run when an interchange was last begun alone: a task that lost it could not take its note back,
-- although its worker lives, so that notes of an earlier start do not count.
ALTER TABLE messagebox.claims ADD COLUMN begun_under timestamptz;
ALTER TABLE messagebox.inbox ADD COLUMN begun_under timestamptz;
