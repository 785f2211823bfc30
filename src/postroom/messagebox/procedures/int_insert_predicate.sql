-- Insert one predicate of an AND-group into its predicate table. Allowed only in the transaction that created the
-- subscription (otherwise PR409), because indexes in memory would miss a later predicate.
-- Index: predicate_groups (subscription_id, number).
CREATE OR REPLACE FUNCTION messagebox.int_insert_predicate(
    p_host_id smallint, p_subscription_id bigint, p_group integer, p_predicate_table smallint, p_property_key text,
    p_operator smallint, p_text text, p_int bigint, p_decimal numeric, p_float double precision
) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = messagebox, management, pg_temp AS $$
DECLARE
    the_property integer;
    the_group bigint;
    made_in xid8;
BEGIN
    SELECT created_in INTO made_in FROM subscriptions
     WHERE id = p_subscription_id AND host_id = p_host_id AND removed_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'subscription % does not belong to this host', p_subscription_id USING ERRCODE = '42501';
    ELSIF made_in IS DISTINCT FROM pg_current_xact_id() THEN
        RAISE EXCEPTION 'subscription % was not made by this transaction', p_subscription_id USING ERRCODE = 'PR409';
    END IF;
    SELECT id INTO the_property FROM properties WHERE key = p_property_key;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'property % is not deployed', p_property_key USING ERRCODE = 'PR404';
    END IF;
    INSERT INTO predicate_groups AS g (subscription_id, number, predicate_count, has_first_pass)
         VALUES (p_subscription_id, p_group, 1, p_predicate_table = 5)
    ON CONFLICT (subscription_id, number) DO UPDATE
            SET predicate_count = g.predicate_count + 1,
                has_first_pass = g.has_first_pass OR excluded.has_first_pass
      RETURNING id INTO the_group;
    INSERT INTO predicates (predicate_table, group_id, property_id, operator,
                            value_text, value_int, value_decimal, value_float)
         VALUES (p_predicate_table, the_group, the_property, p_operator, p_text, p_int, p_decimal, p_float);
END $$;
