-- Triggers that record what was published and routed, when instances started, and which timeouts they had. They write
-- in the transaction of the publish, or of the persistence point. The records stay when messages and instances are
-- deleted.
CREATE SCHEMA account;
CREATE TABLE account.documents (
    message_id  uuid NOT NULL,
    kind        text NOT NULL,
    number      integer NOT NULL,
    content     jsonb NOT NULL,
    answered    boolean NOT NULL DEFAULT false
);
CREATE INDEX ON account.documents (message_id);
CREATE INDEX ON account.documents (kind) WHERE NOT answered;
CREATE TABLE account.routed (message_id uuid NOT NULL, service_id uuid NOT NULL);
CREATE TABLE account.events (kind text NOT NULL, number integer NOT NULL, time timestamptz NOT NULL);

CREATE FUNCTION account.record_documents() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = account, messagebox, pg_temp AS $$
BEGIN
    INSERT INTO documents (message_id, kind, number, content)
    SELECT new.message_id, d.content->>'kind', (d.content->>'order')::integer, d.content
      FROM parts p, LATERAL (SELECT convert_from(p.body, 'UTF8')::jsonb AS content) d
     WHERE p.part_id = new.body_part_id;
    RETURN NULL;
END $$;

CREATE FUNCTION account.record_routed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = account, messagebox, pg_temp AS $$
BEGIN
    INSERT INTO routed VALUES (new.message_id, new.service_id);
    RETURN NULL;
END $$;

CREATE FUNCTION account.record_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = account, messagebox, pg_temp AS $$
BEGIN
    INSERT INTO events
    SELECT t->'event'->>'kind', d.number, (t->>'time')::timestamptz
      FROM inserted j, LATERAL json_array_elements(j.turns) t, orchestration_messages m, documents d
     WHERE t->'event'->>'kind' IN ('started', 'timer') AND m.instance_id = j.instance_id AND d.message_id = m.message_id
       AND d.kind = 'order';
    RETURN NULL;
END $$;

-- At COMMIT: the body may be written after the message.
CREATE CONSTRAINT TRIGGER account AFTER INSERT ON messagebox.spool
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION account.record_documents();
CREATE TRIGGER account AFTER INSERT ON messagebox.orchestration_journal
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION account.record_events();
CREATE TRIGGER account AFTER INSERT ON messagebox.work_queue
    FOR EACH ROW WHEN (new.attempt = 0 AND new.service_class <> 'orchestrations')
    EXECUTE FUNCTION account.record_routed();
