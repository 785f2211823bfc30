"""SND-01 … 03: send pipelines of send ports, and their failures."""

from __future__ import annotations

import postroom
from postroom import Property
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


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
