-- Bindings: what an operator has bound the logical ports of orchestrations to (BizTalk: the binding of an
-- orchestration). A row applies to all versions of an orchestration. A logical port without a row is bound as its
-- application declares, or to the send port or group with the same name. While a row refers to a send port or a group,
-- this cannot be deleted (SPT-09).
CREATE TABLE management.bindings (
    orchestration  text NOT NULL,
    logical_port   text NOT NULL,
    send_port_id   uuid REFERENCES management.send_ports,
    group_id       uuid REFERENCES management.send_port_groups,
    PRIMARY KEY (orchestration, logical_port),
    -- Neither: direct. Messages are published for whoever subscribes.
    CHECK (num_nonnulls(send_port_id, group_id) <= 1)
);
-- The bindings of a send port or a group that is deleted.
CREATE INDEX ON management.bindings (send_port_id) WHERE send_port_id IS NOT NULL;
CREATE INDEX ON management.bindings (group_id) WHERE group_id IS NOT NULL;
