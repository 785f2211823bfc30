"""The bodies of error responses, in the format of the caller: XML, JSON or plain text."""

from __future__ import annotations

from dataclasses import replace
from xml.sax.saxutils import escape

from postroom.http.messages import Request, Response

_XML, _JSON, _TEXT = "application/xml", "application/json", "text/plain; charset=utf-8"


def format_fault(request: Request, response: Response) -> Response:
    """Return an error response in the format that its request accepts, or that it has itself. Other responses stay as
    they are."""
    error = response.content.get("error")
    if response.body is not None or not isinstance(error, str):
        return response
    content_type = _choose_format(request.header("accept") or "", request.header("content-type") or "")
    if content_type == _JSON:
        return response
    body = f"{error}\n"
    if content_type == _XML:
        body = f'<?xml version="1.0" encoding="utf-8"?>\n<fault><error>{escape(error)}</error></fault>\n'
    return replace(response, body=body.encode(), headers={"Content-Type": content_type, **response.headers})


def _choose_format(accept: str, content_type: str) -> str:
    """Return the first format that the caller accepts, or else that of its request."""
    ranges = [entry.partition(";") for entry in accept.lower().split(",")]
    by_preference = sorted(ranges, key=lambda entry: _read_quality(entry[2]), reverse=True)
    accepted = [media.strip() for media, _, parameters in by_preference if _read_quality(parameters) > 0]
    for media in (*accepted, content_type.lower().partition(";")[0].strip()):
        if media.endswith(("/xml", "+xml")):
            return _XML
        if media.endswith(("/json", "+json")):
            return _JSON
        if media == "text/plain":
            return _TEXT
    return _TEXT


def _read_quality(parameters: str) -> float:
    """Return the value of ``q``, which is 1 if it is missing or wrong."""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 1.0
    return 1.0
