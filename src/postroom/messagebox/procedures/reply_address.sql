-- Return the promoted properties that route an answer to whoever waits for one to a message: the reply port that its
-- sender has passed, or the caller of a request. Null: nobody waits, or the message is an answer itself.
-- correlation_tokens.py finds the same in Python.
CREATE OR REPLACE FUNCTION messagebox.reply_address(p_context jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = messagebox, management, pg_temp AS $$
    SELECT CASE WHEN a.promoted ? 'BTS#RouteDirectToTP'
                     OR a.promoted ? 'BTS#PartnerService' AND NOT a.promoted ? 'BTS#PartnerPort'
                THEN NULL
                WHEN a.properties ? 'BTS#ReplyTo'
                THEN jsonb_build_object('BTS#PartnerService', a.properties -> 'BTS#ReplyTo')
                WHEN a.properties ? 'BTS#EpmRRCorrelationToken'
                THEN jsonb_build_object('BTS#EpmRRCorrelationToken', a.properties -> 'BTS#EpmRRCorrelationToken',
                                        'BTS#RouteDirectToTP', true)
           END
      FROM (SELECT coalesce(p_context -> 'promoted', '{}') AS promoted,
                   coalesce(p_context -> 'written', '{}') || coalesce(p_context -> 'promoted', '{}') AS properties) a;
$$;
