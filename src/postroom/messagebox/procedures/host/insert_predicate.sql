-- Bts_InsertPredicate_<host>: a predicate of one of this host's own subscriptions.
CREATE OR REPLACE FUNCTION messagebox.insert_predicate___HOST__(
    p_subscription_id bigint, p_group integer, p_predicate_table smallint, p_property_key text, p_operator smallint,
    p_text text, p_int bigint, p_decimal numeric, p_float double precision
) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = messagebox, management, pg_temp AS $$
    SELECT messagebox.int_insert_predicate(__HOST_ID__::smallint, p_subscription_id, p_group, p_predicate_table,
                                           p_property_key, p_operator, p_text, p_int, p_decimal, p_float);
$$;
