-- Add the digests of interchanges that came with an idempotency key to their receipts, when their rows in the inbox are
-- deleted. A digest that is recorded does not change.
-- Index: primary key of receipts.
CREATE OR REPLACE FUNCTION messagebox.record_digests(p_units uuid[], p_digests bytea[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    UPDATE receipts r SET digest = d.digest
      FROM unnest(p_units, p_digests) AS d (unit, digest)
     WHERE r.unit = d.unit AND r.digest IS NULL;
$$;
