-- The answer of a publish under a key, for whoever repeats it; written once, in the transaction that took the receipt.
-- Index: receipts' primary key.
CREATE OR REPLACE FUNCTION messagebox.keep_outcome(p_unit uuid, p_outcome jsonb) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    UPDATE receipts SET outcome = p_outcome WHERE unit = p_unit AND chunk = 0 AND outcome = '{}';
$$;
