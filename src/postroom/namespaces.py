"""The namespaces that BizTalk's own properties live in, and the short forms that people write for them."""

from __future__ import annotations

SYSTEM_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/system-properties"
FILE_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/file-properties"
HTTP_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/http-properties"
ERROR_REPORT_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2005/error-report"
#: Not BizTalk's: what a document that is suspended alone has in its context until it goes on (ADR 0020).
SUSPENDED_NAMESPACE = "Postroom.Suspended"
DISTINGUISHED_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/btsDistinguishedFields"

#: Short forms that stand for one of BizTalk's own namespaces. Any other short form is the namespace itself.
PREFIXES = {
    "BTS": SYSTEM_NAMESPACE,
    "FILE": FILE_NAMESPACE,
    "HTTP": HTTP_NAMESPACE,
    "ErrorReport": ERROR_REPORT_NAMESPACE,
}
_SHORT = {namespace: prefix for prefix, namespace in PREFIXES.items()}


def dotted_name(namespace: str, name: str) -> str:
    """How people write a property: ``BTS.MessageType``, ``Orders.Region``."""
    return f"{_SHORT.get(namespace, namespace)}.{name}"


def property_key(namespace: str, name: str) -> str:
    """How a property is stored, in every context and many times over, so with the short form: ``BTS#MessageType``."""
    return f"{_SHORT.get(namespace, namespace)}#{name}"


def split_key(key: str) -> tuple[str, str]:
    """Namespace and name of a stored key."""
    short, _, name = key.rpartition("#")
    return PREFIXES.get(short, short), name


def is_distinguished(key: str) -> bool:
    """Whether a stored key is that of a distinguished field, which is written and never promoted."""
    return key.startswith(f"{DISTINGUISHED_NAMESPACE}#")
