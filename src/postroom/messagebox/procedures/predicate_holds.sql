-- Return true if a predicate holds for a promoted value of the same property. A missing value never matches. Operators:
-- 0 = , 1 <, 2 <=, 3 >, 4 >=, 5 <>, 6 exists, 7 bitwise AND.
CREATE OR REPLACE FUNCTION messagebox.predicate_holds(
    p_operator smallint, p_key text, p_text text, p_int bigint, p_decimal numeric, p_float double precision,
    m_key text, m_text text, m_int bigint, m_decimal numeric, m_float double precision
) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(CASE p_operator
        WHEN 0 THEN m_key = p_key
        WHEN 1 THEN coalesce(m_text < p_text COLLATE "C", m_int < p_int, m_decimal < p_decimal, m_float < p_float)
        WHEN 2 THEN coalesce(m_text <= p_text COLLATE "C", m_int <= p_int, m_decimal <= p_decimal, m_float <= p_float)
        WHEN 3 THEN coalesce(m_text > p_text COLLATE "C", m_int > p_int, m_decimal > p_decimal, m_float > p_float)
        WHEN 4 THEN coalesce(m_text >= p_text COLLATE "C", m_int >= p_int, m_decimal >= p_decimal, m_float >= p_float)
        WHEN 5 THEN m_key <> p_key
        WHEN 6 THEN m_key IS NOT NULL
        WHEN 7 THEN m_int & p_int <> 0
    END, false);
$$;
