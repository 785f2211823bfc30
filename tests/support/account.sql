-- Triggers that record published messages with their order number, and the services that they are queued for. They
-- write in the transaction of the publish. The records stay when the messages are delivered and deleted. A row that
-- returns from a retry has an attempt and is not recorded as a route.
CREATE SCHEMA account;
CREATE TABLE account.published (message_id uuid NOT NULL, n integer NOT NULL);
CREATE TABLE account.routed (message_id uuid NOT NULL, service_id uuid NOT NULL);

CREATE FUNCTION account.record_published() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = account, messagebox, pg_temp AS $$
BEGIN
    INSERT INTO published
    SELECT s.message_id, (convert_from(p.body, 'UTF8')::jsonb->>'n')::integer
      FROM inserted s JOIN parts p ON p.part_id = s.body_part_id;
    RETURN NULL;
END $$;

CREATE FUNCTION account.record_routed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = account, messagebox, pg_temp AS $$
BEGIN
    INSERT INTO routed SELECT message_id, service_id FROM inserted WHERE attempt = 0;
    RETURN NULL;
END $$;

CREATE TRIGGER account AFTER INSERT ON messagebox.spool
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION account.record_published();

DO $$
DECLARE
    queue regclass;
BEGIN
    FOR queue IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'messagebox.work_queue'::regclass LOOP
        EXECUTE format(
            'CREATE TRIGGER account AFTER INSERT ON %s'
            ' REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION account.record_routed()', queue);
    END LOOP;
END $$;
