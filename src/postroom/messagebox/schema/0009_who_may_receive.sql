-- Who may receive, whom to believe, and what must not be shown.

-- A trusted host may say on whose behalf it publishes; set_trust gives and takes the right with the flag.
ALTER TABLE management.hosts ADD COLUMN trusted boolean NOT NULL DEFAULT false;

-- Who a message is from, as far as a trusted host said so. Null, which is all that others can write: the login that
-- published it, and Guest. Not in the context, where anybody could write anything.
ALTER TABLE messagebox.spool ADD COLUMN originator_sid text, ADD COLUMN originator_pid text;

-- Authentication required of what comes in: none, drop what fails it, keep (suspend) what fails it.
ALTER TABLE management.receive_ports ADD COLUMN authentication text NOT NULL DEFAULT 'none'
    CHECK (authentication IN ('none', 'drop', 'keep'));

-- Properties whose values are never shown.
ALTER TABLE management.properties ADD COLUMN sensitive boolean NOT NULL DEFAULT false;

-- A host reads the definitions of its own ports and locations only. One that a port was moved away from still delivers
-- what it has queued, so it reads the port as long as it has any (purge_subscriptions ends that).
ALTER TABLE management.send_ports ADD COLUMN former_host_ids smallint[] NOT NULL DEFAULT '{}';
ALTER TABLE management.receive_locations ADD COLUMN former_host_ids smallint[] NOT NULL DEFAULT '{}';

-- The kind of an adapter for those who may not read the rest of it.
ALTER TABLE management.send_ports ADD COLUMN adapter_kind text GENERATED ALWAYS AS (adapter ->> 'kind') STORED;
ALTER TABLE management.receive_locations ADD COLUMN adapter_kind text GENERATED ALWAYS AS (adapter ->> 'kind') STORED;

-- dequeue_messages_<host> also says who each message is from; a function cannot be replaced by one that returns more.
DO $$
DECLARE
    host text;
BEGIN
    FOR host IN SELECT lower(name) FROM management.hosts LOOP
        EXECUTE format('DROP FUNCTION IF EXISTS messagebox.%I', 'dequeue_messages_' || host);
    END LOOP;
END $$;
