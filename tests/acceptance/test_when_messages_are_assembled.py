"""SND-01 … 03, CTX-26: send pipelines of send ports, and their failures."""

from __future__ import annotations

import gzip
import json

import postroom
from postroom import Property
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def test_a_property_is_demoted_by_the_paths_that_promoted_it_and_the_document_is_compressed(
    installation: Installation,
) -> None:
    installation.apply(
        """
    from postroom import maps
    from postroom.pipelines import components

    paths = {Region: "customer.region", Total: "total"}
    orders = pipelines.Json(promote=paths, message_type="order")
    app.receive_port("In").location("drop", adapters.File("in"), pipeline=orders)

    def without_values(message):
        return b'{"kind": "invoice"}'

    app.send_port(
        "Invoices",
        adapters.File("out", name="%MessageID%.gz"),
        filter=Region == "EU",
        maps=[maps.Python(without_values, source="order", target="invoice")],
        pipeline=pipelines.Send(
            assemble=components.JsonAssembler(demote=paths, envelope=components.JsonEnvelope("invoices")),
            encode=[components.GzipEncoder()],
        ),
    )
    """
    )
    shown = installation.run_json("port", "show", "Invoices")["pipeline"]
    assert shown[0].startswith("assemble: JsonAssembler")
    assert shown[1].startswith("encode: GzipEncoder")
    received = installation.receive("drop", b'{"customer": {"region": "EU"}, "total": 12}')
    assert (received.published, received.suspended) == (1, 0)
    installation.start_host()
    [content] = installation.wait_for_files("out", 1)
    expected = {"invoices": [{"kind": "invoice", "customer": {"region": "EU"}, "total": 12}]}
    assert json.loads(gzip.decompress(content)) == expected


def test_every_problem_of_a_send_pipeline_is_listed(installation: Installation) -> None:
    path = installation.write(
        """
    from postroom import Property
    from postroom.pipelines import components
    Unknown = Property("Orders.Unknown", str)

    app.send_port("A", adapters.Null(), pipeline=pipelines.Send(
        assemble=components.JsonAssembler(demote={Unknown: "$.x"}), encode=[components.Gzip(), lambda message: message]
    ))
    app.send_port("B", adapters.Null(), pipeline=pipelines.Json())
    """
    )
    shown = " ".join(installation.run("plan", str(path), exit_code=3).split())
    for problem in (
        "The path '$.x' of Orders.Unknown starts with '$'; write 'x'.",
        "encode, component 1: Gzip is not an Encoder and cannot be used in this stage.",
        "is not a send pipeline; write pipelines.Send(...).",
        "Orders.Unknown is not known",
    ):
        assert problem in shown


def test_a_send_port_sends_what_its_pipeline_returns_and_suspends_failures_without_a_retry(
    installation: Installation,
) -> None:
    declarations = """
    def stamp(message):
        if message.data == b"secret":
            return None
        if message.data == b"bad":
            raise ValueError("it has no total")
        return b"<" + message.data + b">"

    stamped = pipelines.Send(encode=[stamp])
    app.send_port("Stamped", adapters.File("out"), filter=Region == "EU", pipeline=stamped,
                  retry=Retry(count=5, interval=0))
    app.send_port("Routed", adapters.File("routed"), filter=Region == "EU", pipeline=stamped, route_failures=True)
    app.send_port("Failed", adapters.File("failed"), filter=ErrorReport.SendPortName == "Routed")
    """
    installation.apply(declarations)
    assert installation.run_json("port", "show", "Stamped")["pipeline"] == ["encode: stamp of app.py"]
    installation.start_host()
    with postroom.connect(installation.database) as client:
        for body in (b"secret", b"bad", b"good"):
            client.publish(body, promoted={Region: "EU"})
    assert installation.wait_for_files("out", 1) == [b"<good>"]
    assert installation.wait_for_files("routed", 1) == [b"<good>"]
    assert installation.wait_for_files("failed", 1) == [b"bad"]
    [suspended] = wait_until(lambda: installation.list_suspended("resumable"), what="the suspended instance")
    assert (suspended["error_code"], suspended["attempt"]) == ("PIPELINE", 1)
    assert "stamp: it has no total" in suspended["error_description"]
    # The consumed message is completed: nothing of it is left.
    wait_until(
        lambda: [port["waiting"] for port in installation.run_json("port", "list")] == [0, 0, 0], what="empty queues"
    )
    fixed = declarations.replace('raise ValueError("it has no total")', 'return b"corrected"')
    assert "pipeline file app.py" in installation.run("plan", str(installation.write(fixed)))
    installation.apply(fixed)
    installation.run("instance", "resume", suspended["instance_id"])
    assert sorted(installation.wait_for_files("out", 2)) == [b"<good>", b"corrected"]
