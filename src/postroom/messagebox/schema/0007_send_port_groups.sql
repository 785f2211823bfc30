-- Send port groups: send ports that get messages together. A group has no subscription of its own: each member has one
-- more, through the group, as long as both are enlisted.

ALTER TABLE management.send_ports ADD COLUMN description text NOT NULL DEFAULT '' CHECK (length(description) <= 256);

CREATE TABLE management.send_port_groups (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),     -- BTS.SPGroupID
    application_id  uuid NOT NULL REFERENCES management.applications,
    name            text NOT NULL UNIQUE,
    description     text NOT NULL DEFAULT '' CHECK (length(description) <= 256),
    filter          text,
    state           smallint NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 3)    -- 1 bound, 2 stopped, 3 started
);

CREATE TABLE management.send_port_group_members (
    group_id         uuid NOT NULL REFERENCES management.send_port_groups ON DELETE CASCADE,
    port_id          uuid NOT NULL REFERENCES management.send_ports,  -- a member cannot be deleted (SPT-09)
    subscription_id  bigint,                                          -- null unless both are enlisted
    PRIMARY KEY (group_id, port_id)
);
CREATE INDEX ON management.send_port_group_members (port_id);

-- The group that a subscription comes through; its service is the member.
ALTER TABLE messagebox.subscriptions ADD COLUMN group_id uuid, ADD COLUMN group_name text;

-- Suspended because the port or this group was stopped. Not by way of the subscription, which may be another by the time
-- when both are started.
ALTER TABLE messagebox.suspended_queue ADD COLUMN group_id uuid;
CREATE INDEX suspended_queue_stopped_group ON messagebox.suspended_queue (group_id)
    WHERE cause = 1 AND group_id IS NOT NULL;

-- Hosts that are there already; create_queues does it for new ones.
DO $$
DECLARE
    host record;
BEGIN
    FOR host IN SELECT lower(h.name) AS name, b.id AS box FROM management.hosts h, management.message_box b LOOP
        EXECUTE format('GRANT INSERT (group_id) ON messagebox.%I TO %I',
                       host.name || '_q_suspended', 'postroom_' || host.box || '_hosts');
    END LOOP;
END $$;
