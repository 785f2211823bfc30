-- The first thing of a publish: a receipt for each unit of work. Returns those that were taken now; a unit that is not
-- among them was published before. Hosts have no other way to receipts, whose units would tell them message ids.
-- Index: receipts' primary key. Waits for another transaction that is taking the same receipt.
CREATE OR REPLACE FUNCTION messagebox.take_receipts(p_units uuid[], p_chunks integer[], p_outcomes jsonb[])
RETURNS TABLE (unit uuid, chunk integer)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    INSERT INTO receipts (unit, chunk, outcome)
    SELECT * FROM unnest(p_units, p_chunks, p_outcomes)
    ON CONFLICT DO NOTHING
    RETURNING receipts.unit, receipts.chunk;
$$;
