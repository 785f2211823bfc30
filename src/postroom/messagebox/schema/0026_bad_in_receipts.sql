-- How many documents were bad is read with the receipts. A function keeps the columns that it returns, so that this one is
-- made anew, with the other procedures.
DROP FUNCTION IF EXISTS messagebox.read_receipts(uuid[]);
