-- Insert a receipt for each chunk of a unit of work, before its messages are written. Returns the new receipts. A chunk
-- that is missing was published before. Hosts have no other access to receipts, because units reveal message ids.
-- Index: receipts' primary key. Waits for another transaction that is taking the same receipt.
CREATE OR REPLACE FUNCTION messagebox.take_receipts(p_units uuid[], p_chunks integer[], p_outcomes jsonb[])
RETURNS TABLE (unit uuid, chunk integer)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    INSERT INTO receipts (unit, chunk, outcome)
    SELECT * FROM unnest(p_units, p_chunks, p_outcomes)
    ON CONFLICT DO NOTHING
    RETURNING receipts.unit, receipts.chunk;
$$;
