-- Record the outcome of a publish with an idempotency key and the digest of its messages, for a repeat of it; once, in
-- the transaction that inserted the receipt.
-- Index: primary key of receipts.
CREATE OR REPLACE FUNCTION messagebox.record_outcome(p_unit uuid, p_outcome jsonb, p_digest bytea) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    UPDATE receipts SET outcome = p_outcome, digest = p_digest WHERE unit = p_unit AND chunk = 0 AND outcome = '{}';
$$;
