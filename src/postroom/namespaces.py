"""The namespaces of BizTalk's own properties, and their short forms."""

from __future__ import annotations

SYSTEM_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/system-properties"
FILE_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/file-properties"
HTTP_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/http-properties"
ERROR_REPORT_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2005/error-report"
#: Not BizTalk's: what a document that is suspended alone has in its context until it goes on (ADR 0020).
SUSPENDED_NAMESPACE = "Postroom.Suspended"
DISTINGUISHED_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/btsDistinguishedFields"

#: The short forms of BizTalk's own namespaces. Any other namespace has no short form.
PREFIXES = {
    "BTS": SYSTEM_NAMESPACE,
    "FILE": FILE_NAMESPACE,
    "HTTP": HTTP_NAMESPACE,
    "ErrorReport": ERROR_REPORT_NAMESPACE,
}
_SHORT = {namespace: prefix for prefix, namespace in PREFIXES.items()}


def dotted_name(namespace: str, name: str) -> str:
    """Return the dotted name of a property: ``BTS.MessageType``, ``Orders.Region``."""
    return f"{_SHORT.get(namespace, namespace)}.{name}"


def property_key(namespace: str, name: str) -> str:
    """Return the stored key of a property: ``BTS#MessageType``. It has the short form because every context repeats
    it."""
    return f"{_SHORT.get(namespace, namespace)}#{name}"


def split_key(key: str) -> tuple[str, str]:
    """Return namespace and name of a stored key."""
    short, _, name = key.rpartition("#")
    return PREFIXES.get(short, short), name


def is_distinguished(key: str) -> bool:
    """Return True if a stored key belongs to a distinguished field."""
    return key.startswith(f"{DISTINGUISHED_NAMESPACE}#")
