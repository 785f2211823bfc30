-- Return the context of the error message about a message: all properties of the original, none of them promoted, its
-- message predicates, and the error report. Only the report (ErrorReport) is taken from the host. The originator of the
-- error message is that of the original, and the host cannot change it (ADR 0018).
CREATE OR REPLACE FUNCTION messagebox.error_context(p_original jsonb, p_report jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = messagebox, management, pg_temp AS $$
    SELECT jsonb_build_object('promoted', report.promoted, 'written', original.properties || report.written)
           || CASE WHEN p_original ? 'predicates'
                   THEN jsonb_build_object('predicates', p_original -> 'predicates') ELSE '{}' END
      FROM (SELECT coalesce(jsonb_object_agg(k.key, k.value), '{}') AS properties
              FROM jsonb_each(coalesce(p_original -> 'written', '{}') || coalesce(p_original -> 'promoted', '{}')) k
             WHERE NOT starts_with(k.key, 'ErrorReport#')) original,
           (SELECT coalesce(jsonb_object_agg(k.key, k.value) FILTER (WHERE k.promoted), '{}') AS promoted,
                   coalesce(jsonb_object_agg(k.key, k.value) FILTER (WHERE NOT k.promoted), '{}') AS written
              FROM (SELECT key, value, true AS promoted FROM jsonb_each(coalesce(p_report -> 'promoted', '{}'))
                    UNION ALL
                    SELECT key, value, false FROM jsonb_each(coalesce(p_report -> 'written', '{}'))) k
             WHERE starts_with(k.key, 'ErrorReport#')) report;
$$;
