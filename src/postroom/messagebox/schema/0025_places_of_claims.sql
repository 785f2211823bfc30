-- Where a claim of an ordered location stands among the others: the number that it had first. One that is taken back from
-- the stream gets another number, and keeps its place. No index: a location has few claims that wait for a number.
ALTER TABLE messagebox.claims ADD COLUMN place bigint;
UPDATE messagebox.claims SET place = number WHERE state = 2;
