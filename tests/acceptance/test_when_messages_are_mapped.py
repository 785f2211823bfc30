"""RCV-12, 17, 20, 21, SND-01, 03: maps of receive ports and send ports, and mapping failures."""

from __future__ import annotations

import pytest

import postroom
from postroom import BTS, Property
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)

STYLESHEET = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="/order">
  <xsl:if test="not(total)"><xsl:message terminate="yes">an order has a total</xsl:message></xsl:if>
  <invoice><xsl:value-of select="total"/></invoice>
</xsl:template>
</xsl:stylesheet>
"""
LENIENT = STYLESHEET.replace("not(total)", "false()")

ORDER, BAD = b'<order region="EU"><total>12</total></order>', b'<order region="EU"/>'
MAPPED = b'<?xml version="1.0"?>\n<invoice>12</invoice>\n'


def write_stylesheet(installation: Installation, text: str = STYLESHEET) -> None:
    (installation.home / "order-to-invoice.xslt").write_text(text)


INBOUND = """
    from postroom import maps
    from postroom.pipelines import components

    class SuspendOnMappingFailure(components.Decoder):
        def decode(self, message):
            return message.with_context(message.context.write(BTS.SuspendMessageOnMappingFailure, True))

    class Lines(components.Disassembler):
        def disassemble(self, message):
            for line in message.data.splitlines():
                yield postroom.Message.of(line, promoted={BTS.MessageType: "order"})

    to_invoice = maps.Xslt(
        "order-to-invoice.xslt", source="order", target="invoice", read=pipelines.Xml(promote={Total: "/invoice"})
    )
"""


def test_a_mapped_message_is_routed_by_its_new_type_and_properties(installation: Installation) -> None:
    """A message of another type passes through the port unchanged."""
    write_stylesheet(installation)
    installation.apply(
        INBOUND
        + """
    orders = pipelines.Xml(promote={Region: "/*/@region"}, split="/orders/*")
    app.receive_port("In", maps=[to_invoice]).location("drop", adapters.File("in"), pipeline=orders)
    app.send_port("Invoices", adapters.Null(), filter=(BTS.MessageType == "invoice") & (Total == 12) & (Region == "EU"))
    app.send_port("Memos", adapters.Null(), filter=BTS.MessageType == "memo")
    app.send_port("Orders", adapters.Null(), filter=BTS.MessageType == "order")
    """
    )
    content = b"<orders>%b<memo/></orders>" % ORDER
    received = installation.receive("drop", content)
    assert (received.published, received.suspended) == (2, 0)
    waiting = {port["name"]: port["waiting"] for port in installation.run_json("port", "list")}
    assert waiting == {"Invoices": 1, "Memos": 1, "Orders": 0}
    bodies = {
        installation.run("message", "body", message["message_id"])
        for message in installation.run_json("message", "list")
    }
    assert bodies == {MAPPED.decode(), "<memo/>"}
    installation.drop_file("orders.xml", content, folder="elsewhere")
    explained = " ".join(
        installation.run("explain", "--file", str(installation.home / "elsewhere" / "orders.xml")).split()
    )
    assert "BTS.MessageType = 'invoice'" in explained
    assert "Orders.Total = 12" in explained


def test_an_interchange_that_its_map_rejected_can_be_resumed_after_the_map_is_fixed(installation: Installation) -> None:
    write_stylesheet(installation)
    declarations = (
        INBOUND
        + """
    orders = pipelines.Xml(split="/orders/*")
    app.receive_port("In", maps=[to_invoice]).location("drop", adapters.File("in"), pipeline=orders)
    app.send_port("Invoices", adapters.File("out"), filter=BTS.MessageType == "invoice")
    """
    )
    installation.apply(declarations)
    content = b"<orders>%b%b</orders>" % (ORDER, BAD)
    received = installation.receive("drop", content)
    assert (received.published, received.suspended) == (0, 1)
    [suspended] = installation.list_suspended("resumable")
    assert suspended["error_code"] == "MAP"
    assert "Document 2: order-to-invoice.xslt: The map failed." in suspended["error_description"]
    assert "an order has a total" in suspended["error_description"]
    assert installation.run("message", "body", suspended["instance_id"]).encode() == content
    installation.start_host()
    write_stylesheet(installation, LENIENT)
    installation.apply(declarations)
    installation.run("instance", "resume", suspended["instance_id"])
    assert sorted(installation.wait_for_files("out", 2)) == [b'<?xml version="1.0"?>\n<invoice/>\n', MAPPED]


@pytest.mark.parametrize(
    ("decode", "published", "suspended"),
    [("[]", 0, [b"\n".join([ORDER, BAD, ORDER])]), ("[SuspendOnMappingFailure()]", 2, [BAD])],
)
def test_a_mapping_failure_suspends_a_recoverable_interchange_unless_the_document_has_the_flag(
    installation: Installation, decode: str, published: int, suspended: list[bytes]
) -> None:
    """RCV-17."""
    write_stylesheet(installation)
    installation.apply(
        INBOUND.replace("class Lines", "import postroom\n\n    class Lines")
        + f"""
    lines = pipelines.Receive(decode={decode}, disassemble=[Lines()], recoverable=True)
    app.receive_port("In", maps=[to_invoice]).location("drop", adapters.File("in"), pipeline=lines)
    app.send_port("Invoices", adapters.Null(), filter=BTS.MessageType == "invoice")
    """
    )
    assert installation.receive("drop", b"\n".join([ORDER, BAD, ORDER])).published == published
    instances = installation.list_suspended("resumable", error="MAP")
    assert [
        installation.run("message", "body", instance["instance_id"]).encode() for instance in instances
    ] == suspended


def test_a_send_port_sends_mapped_messages_and_suspends_mapping_failures_without_a_retry(
    installation: Installation,
) -> None:
    write_stylesheet(installation)
    declarations = """
    from postroom import maps
    to_invoice = maps.Xslt("order-to-invoice.xslt", source="order", target="invoice")
    app.send_port("Invoices", adapters.File("out"), filter=Region == "EU", maps=[to_invoice],
                  retry=Retry(count=5, interval=0))
    app.send_port("Routed", adapters.File("routed"), filter=Region == "EU", maps=[to_invoice], route_failures=True)
    app.send_port("Failed", adapters.File("failed"), filter=ErrorReport.SendPortName == "Routed")
    app.send_port("Plain", adapters.File("plain"), filter=Region == "EU")
    """
    installation.apply(declarations)
    installation.start_host()
    with postroom.connect(installation.database) as client:
        client.publish(ORDER, promoted={Region: "EU", BTS.MessageType: "order"})
        client.publish(b"<memo/>", promoted={Region: "EU", BTS.MessageType: "memo"})
        client.publish(BAD, promoted={Region: "EU", BTS.MessageType: "order"})
    assert sorted(installation.wait_for_files("out", 2)) == [MAPPED, b"<memo/>"]
    assert sorted(installation.wait_for_files("routed", 2)) == [MAPPED, b"<memo/>"]
    assert sorted(installation.wait_for_files("plain", 3)) == sorted([ORDER, BAD, b"<memo/>"])
    assert installation.wait_for_files("failed", 1) == [BAD]
    [suspended] = wait_until(lambda: installation.list_suspended("resumable"), what="the suspended instance")
    assert (suspended["error_code"], suspended["attempt"]) == ("MAP", 1)
    assert "order-to-invoice.xslt: The map failed." in suspended["error_description"]
    write_stylesheet(installation, LENIENT)
    assert "maps file order-to-invoice.xslt" in installation.run("plan", str(installation.home / "app.py"))
    installation.apply(declarations)
    installation.run("instance", "resume", suspended["instance_id"])
    assert b'<?xml version="1.0"?>\n<invoice/>\n' in installation.wait_for_files("out", 3)
