"""Read the documentation for tests: pages, links, headings and fenced blocks. Write its generated parts.

python -m tests.support.pages          # write the generated parts of the pages
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from postroom.properties import Property
from postroom.system_properties import BTS, FILE, HTTP, ErrorReport

ROOT = Path(__file__).parents[2]
PROPERTIES = ROOT / "docs" / "reference" / "properties.md"

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>.*)$")
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")
_HEADING = re.compile(r"^#{1,6} +(?P<text>.+?) *#*$")
_INLINE_CODE = re.compile(r"`[^`\n]+`")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block. ``words`` are the words after the language on its first line."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return every page that is written for readers."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path, language: str) -> list[Block]:
    """Return the fenced blocks of one language, in order."""
    return [block for block in _blocks(page) if block.language == language]


def _blocks(page: Path) -> Iterator[Block]:
    opened: tuple[int, str, str, str] | None = None
    held: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if opened is None:
            if fence is not None:
                opened, held = (number, fence["indent"], fence["fence"], fence["info"].strip()), []
        elif line.strip() == opened[2]:
            first, indent, _, info = opened
            language, *words = info.split() or [""]
            text = "".join(one.removeprefix(indent) + "\n" for one in held)
            yield Block(page=page, line=first, language=language, words=tuple(words), text=text)
            opened = None
        else:
            held.append(line)
    assert opened is None, f"{page}:{opened[0]}: the block is never closed"


def prose(page: Path) -> list[str]:
    """Return the lines without code between backticks. A line inside a fenced block is empty."""
    fence = ""
    lines = []
    for line in page.read_text(encoding="utf-8").splitlines():
        found = _FENCE.match(line)
        if not fence and found is not None:
            fence = found["fence"]
            lines.append("")
        elif fence:
            fence = "" if line.strip() == fence else fence
            lines.append("")
        else:
            lines.append(_INLINE_CODE.sub("", line))
    return lines


def links(page: Path) -> list[tuple[int, str]]:
    """Return the targets of the links and pictures of a page, with their line numbers. A label may span lines."""
    lines = page.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line if plain else "" for line, plain in zip(lines, prose(page), strict=True))
    return [(text.count("\n", 0, match.start()) + 1, match["target"]) for match in _LINK.finditer(text)]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub creates them."""
    found: set[str] = set()
    for line, plain in zip(page.read_text(encoding="utf-8").splitlines(), prose(page), strict=True):
        heading = _HEADING.match(line) if plain else None
        if heading is not None:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["text"]).replace("`", "").lower()
            found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


def system_property_table() -> str:
    """Generate the tables of the system properties: those that the engine sets, and the others."""
    used = ["| property | type | set on, or set by |", "|---|---|---|"]
    unused = ["| property that this version neither sets nor reads | type |", "|---|---|"]
    for namespace, prefix in ((BTS, "BTS"), (FILE, "FILE"), (HTTP, "HTTP"), (ErrorReport, "ErrorReport")):
        for name, prop in vars(namespace).items():
            if isinstance(prop, Property):
                cells = f"| `{prefix}.{name}` | {prop.value_type.python_type.__name__} |"
                if prop.dotted_name in SET_BY:
                    used.append(f"{cells} {SET_BY[prop.dotted_name]} |")
                else:
                    unused.append(cells)
    return "\n".join([*used, "", *unused]) + "\n"


_RECEIVED = "every received message, promoted"
_ERROR = "every error message"
_SENDING = "the context for the adapter of a send port, written"
_FILE_NAME = "a publisher or a pipeline component; a macro of [file names](adapters.md#file) uses it"
_TO_ORCHESTRATION = "a message that is sent [to another orchestration](../how-to/orchestrations.md#direct-ports)"
SET_BY = {
    "BTS.ReceivePortID": _RECEIVED,
    "BTS.ReceivePortName": _RECEIVED,
    "BTS.InboundTransportLocation": _RECEIVED,
    "BTS.InboundTransportType": _RECEIVED,
    "BTS.InterchangeSequenceNumber": _RECEIVED,
    "BTS.SuspendMessageOnRoutingFailure": f"{_RECEIVED}; a publishing program may promote or write it",
    "BTS.MessageType": "messages of a pipeline that sets a type, promoted",
    "BTS.ReceiveLocationName": "every received message, written",
    "BTS.InterchangeID": "every received message, written",
    "BTS.SPGroupID": "a publisher that directs a message to a send port group; the engine only compares it",
    "BTS.SPTransportID": "a publisher that directs a message to one send port; the engine only compares it",
    "BTS.SPName": _SENDING,
    "BTS.SPID": f"{_SENDING}; a publisher that directs a message to a dynamic send port promotes it",
    "BTS.IsDynamicSend": "the context for the adapter of a dynamic send port, written",
    "BTS.OutboundTransportLocation": f"{_SENDING}; for a dynamic send port the publisher",
    "BTS.OutboundTransportType": f"{_SENDING}; for a dynamic send port the publisher",
    "BTS.OriginatorPID": "every message: `Guest`, or the party that a "
    "[trusted host](../how-to/authenticate-senders.md#trusted-hosts) names; "
    "visible to filters only if an HTTP location with `api_keys` or `users`, a party resolver or a program promoted it",
    "BTS.OriginatorSID": "every message: the login that published it, or the account that a trusted host names; "
    "visible to filters like the party",
    "BTS.RetryInterval": f"{_SENDING}, in whole minutes",
    "BTS.RetryCount": f"{_SENDING}: how many retries are left",
    "BTS.AckDescription": "every NACK, written: the reason",
    "BTS.AckFailureCategory": "every NACK, promoted: always 0",
    "BTS.AckFailureCode": "every NACK, promoted: as `ErrorReport.FailureCode`",
    "BTS.AckID": "every acknowledgement, promoted: the id of the message",
    "BTS.AckInboundTransportLocation": "every NACK of a receive location, promoted: the address of the location",
    "BTS.AckOutboundTransportLocation": "every acknowledgement of a send port, promoted: the address of the port",
    "BTS.AckOwnerID": "every acknowledgement, promoted: the instance of the port or location",
    "BTS.AckReceivePortID": "every NACK of a receive location, promoted",
    "BTS.AckReceivePortName": "every NACK of a receive location, promoted",
    "BTS.AckRequired": "a publisher, who asks for an [ACK](../how-to/send-messages.md#acknowledgements)",
    "BTS.AckSendPortID": "every acknowledgement of a send port, promoted",
    "BTS.AckSendPortName": "every acknowledgement of a send port, promoted",
    "BTS.AckType": "every acknowledgement, promoted: `ACK` or `NACK`. Without a subscriber it is dropped",
    "BTS.ActionOnFailure": "a receive [adapter of your own](../how-to/write-an-adapter.md#receive), which "
    "decides about interchanges that the pipeline rejects: 0",
    "BTS.ActivationServiceID": "a message that [starts an orchestration]"
    "(../how-to/orchestrations.md#call-start-suspend-terminate), promoted: the name of the orchestration",
    "BTS.PartnerPort": f"{_TO_ORCHESTRATION}, promoted: the name of the partner port",
    "BTS.PartnerService": f"{_TO_ORCHESTRATION}, promoted: the orchestration of a partner port, or the token of a "
    "self-correlating port",
    "BTS.ReplyTo": "a message whose sender has passed a self-correlating port, written: its token",
    "BTS.CorrelationToken": "a publisher, or a [request](../how-to/two-way-http.md); its acknowledgements and its"
    " response have it too, promoted",
    "BTS.EpmRRCorrelationToken": "every [request](../how-to/two-way-http.md) of a two-way receive port, and its"
    " response, promoted: the token that they share",
    "BTS.IsRequestResponse": "every request of a two-way receive port, written",
    "BTS.IsSolicitResponse": "every response of a two-way send port, written",
    "BTS.RouteDirectToTP": "every response that a caller waits for, promoted",
    "BTS.HopCount": "a message that an orchestration sends, or a response that a send port has received, written: how"
    " many services have [passed it on](../how-to/orchestrations.md#loops)",
    "BTS.HopServices": "the same messages, written: the last ten of these services",
    "HTTP.ResponseStatusCode": "every response of a two-way send port, written; whoever builds the response [to a"
    " caller](../how-to/two-way-http.md#status-and-headers): its status",
    "HTTP.UserHttpHeaders": "whoever builds the response [to a"
    " caller](../how-to/two-way-http.md#status-and-headers): its headers, one in a line",
    "BTS.SignatureCertificate": "messages that `components.SMime` has verified, written: the SHA-256 thumbprint of the "
    "signer's certificate",
    "BTS.MessageDestination": "a disassembler of your own, on a document: with `SuspendQueue` the document is "
    "[suspended](components.md#building-blocks-for-your-own-components)",
    "BTS.SuspendAsNonResumable": "a publisher or a pipeline component: after a failure the message is suspended and "
    "cannot be resumed",
    "BTS.SuppressRoutingFailureDiagnosticInfo": "a publisher or a pipeline component: no routing failure report is "
    "written if the message has no subscriber",
    "BTS.SuspendMessageOnMappingFailure": "a pipeline component: if a map fails, only "
    "[the document is suspended](../how-to/maps.md#failures)",
    "BTS.SourceParty": _FILE_NAME,
    "BTS.SourcePartyQualifier": _FILE_NAME,
    "BTS.ExpirationTime": "a publisher: it is [not sent](../explanation/sending.md#expiration) after this time",
    "BTS.DestinationParty": _FILE_NAME,
    "BTS.DestinationPartyQualifier": _FILE_NAME,
    "FILE.ReceivedFileName": "messages from files, written",
    "HTTP.ContentType": "messages from an HTTP location, written, if the request had one",
    "HTTP.InboundHttpHeaders": "messages from an HTTP location, written: one line per header, without credentials",
    "HTTP.QueryString": "messages from an HTTP location, written, if the request had one",
    "HTTP.RemoteAddress": "messages from an HTTP location, written",
    "HTTP.Username": "messages from an HTTP location, written: the user name of Basic authentication, verified only if "
    "the location has `users`",
    "ErrorReport.Description": f"{_ERROR}, written: what, why and what to do",
    "ErrorReport.ErrorType": f"{_ERROR}, promoted: `FailedMessage`",
    "ErrorReport.FailureAdapter": f"{_ERROR}, written: the kind of the adapter",
    "ErrorReport.FailureCategory": f"{_ERROR}, promoted: always 0",
    "ErrorReport.FailureCode": f"{_ERROR}, promoted; see [error codes](errors.md#codes-of-error-messages)",
    "ErrorReport.FailureInstanceID": f"{_ERROR}, written: the instance that would have been suspended",
    "ErrorReport.FailureMessageID": f"{_ERROR}, written: the message that failed",
    "ErrorReport.FailureTime": f"{_ERROR}, written",
    "ErrorReport.InboundTransportLocation": f"{_ERROR} of a receive port, promoted",
    "ErrorReport.MessageType": f"{_ERROR}, promoted, if the type was known",
    "ErrorReport.OutboundTransportLocation": f"{_ERROR} of a send port, promoted",
    "ErrorReport.ProcessingServer": f"{_ERROR}, written: the machine",
    "ErrorReport.ReceivePortName": f"{_ERROR} of a receive port, promoted",
    "ErrorReport.RoutingFailureReportID": f"{_ERROR} of a routing failure, promoted: the report's instance id",
    "ErrorReport.SendPortName": f"{_ERROR} of a send port, promoted",
}


def with_generated(page: Path, name: str, generated: str) -> str:
    """Return the text of a page with a new text between the marks of this name."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}: begin (written by tests/support/pages.py) -->\n", f"<!-- {name}: end -->"
    head, found, rest = text.partition(begin)
    _, also_found, tail = rest.partition(end)
    assert found, f"{page} lacks the mark {begin!r}"
    assert also_found, f"{page} lacks the mark {end!r}"
    return f"{head}{begin}{generated}{end}{tail}"


if __name__ == "__main__":
    PROPERTIES.write_text(with_generated(PROPERTIES, "system properties", system_property_table()), encoding="utf-8")
