"""Properties: the named, typed entries of a message context that filters can compare.

    Region = Property("Orders.Region", str)
    Region == "EU"                              # a filter

A property is identified by namespace and name. Its dotted form is the short form of the namespace, a dot, and the name:
``Orders.Region`` is *Region* in the namespace *Orders*, ``BTS.ReceivePortName`` is *ReceivePortName* in BizTalk's
system namespace.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Generic, NoReturn, overload

from typing_extensions import TypeVar

from postroom.errors import BadValue
from postroom.filters.expression import NO_NOT, Filter, Operator, compare
from postroom.filters.tokens import escape
from postroom.values import Value, ValueType, check_promoted, check_value

SYSTEM_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/system-properties"
FILE_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/file-properties"
HTTP_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2003/http-properties"
ERROR_REPORT_NAMESPACE = "http://schemas.microsoft.com/BizTalk/2005/error-report"
#: Not BizTalk's: properties of a document that is suspended alone, until it is resumed (ADR 0020).
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

#: The maximum number of properties of a convoy, as in BizTalk.
MAX_CONVOY_PROPERTIES = 3

#: The Python type of a property's values. ``Property`` alone is a property of any type.
T_co = TypeVar("T_co", covariant=True, default=Any)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOTTED = re.compile(rf"{_NAME.pattern}(\.{_NAME.pattern})+")
_PREFIX = re.compile(rf"{_NAME.pattern}(\.{_NAME.pattern})*")


def dotted_name(namespace: str, name: str) -> str:
    """Return the full name of a property, as filters have it: ``BTS.MessageType``, ``Orders.Region``. A namespace that
    does not consist of identifiers is in braces: ``{http://example.com/invoices}Number``."""
    prefix = _SHORT.get(namespace, namespace)
    return f"{prefix}.{name}" if _PREFIX.fullmatch(prefix) else f"{{{escape(namespace, '}')}}}{name}"


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


#: The values of these properties are names of transports, which are not case-sensitive (CTX-18).
_TRANSPORT_TYPES = frozenset(
    property_key(SYSTEM_NAMESPACE, name) for name in ("InboundTransportType", "OutboundTransportType")
)


class Property(Generic[T_co]):
    """A property that messages can have and filters can compare.

    ``Property("Orders.Total", Decimal)`` is a ``Property[Decimal]``; with ``namespace=`` the first argument is the name
    alone. The values of a ``sensitive`` property take part in routing and are never shown.

    Comparing a property with a value creates a filter. Comparing it with another property returns True if they are the
    same: they have the same namespace, name and type.
    """

    __slots__ = ("key", "name", "namespace", "sensitive", "value_type")

    def __init__(self, name: str, type: type[T_co], *, namespace: str | None = None, sensitive: bool = False) -> None:
        if namespace is None:
            if not _DOTTED.fullmatch(name):
                raise BadValue(
                    f"{name!r} is not the name of a property.",
                    hint='Write namespace and name, such as "Orders.Region", or pass namespace=.',
                )
            prefix, _, name = name.rpartition(".")
            namespace = prefix
        elif not _NAME.fullmatch(name):
            raise BadValue(f"{name!r} is not the name of a property.", hint="Use letters, digits and underscores.")
        elif not namespace or "#" in namespace:
            raise BadValue(f"{namespace!r} is not a namespace.", hint="A namespace is not empty and has no '#'.")
        # A short form always means its namespace, so that each property has exactly one key.
        namespace = PREFIXES.get(namespace, namespace)
        self._identify(namespace, name, ValueType.of(type))
        self.sensitive = sensitive

    def _identify(self, namespace: str, name: str, value_type: ValueType) -> None:
        self.namespace = namespace
        self.name = name
        self.value_type = value_type
        self.key = property_key(namespace, name)

    @classmethod
    def from_key(cls, key: str, value_type: ValueType, *, sensitive: bool = False) -> Property[Any]:
        """Return the property of a stored key (``Orders#Region``)."""
        namespace, name = split_key(key)
        if namespace == DISTINGUISHED_NAMESPACE:
            return DistinguishedField(name)
        return cls(name, value_type.python_type, namespace=namespace, sensitive=sensitive)

    @property
    def dotted_name(self) -> str:
        """The full name: ``Orders.Region``."""
        return dotted_name(self.namespace, self.name)

    def canonical(self, value: Value) -> Value:
        """Return the canonical form of a value: the name of a transport in upper case, any other value unchanged.

        Contexts and filters store canonical values, so matchers need not know the rule."""
        return value.upper() if type(value) is str and self.key in _TRANSPORT_TYPES else value

    def check(self, value: object, *, promoted: bool = True) -> Value:
        """Return ``value`` in the form that this property stores. Raise BadValue if it does not fit."""
        try:
            checked = self.canonical(check_value(self.value_type, value))
            return check_promoted(checked) if promoted else checked
        except BadValue as error:
            raise BadValue(f"{self.dotted_name}: {error.what}", hint=error.hint) from None

    def exists(self) -> Filter:
        """Match every message that has the property promoted, with any value: ``Priority.exists()``."""
        return compare(self, Operator.EXISTS, None)

    def bitand(self, mask: object) -> Filter:
        """Match messages whose value has a bit in common with the mask: ``Flags.bitand(4)``."""
        return compare(self, Operator.BITAND, mask)

    @overload  # type: ignore[override]
    def __eq__(self, other: Property) -> bool: ...  # type: ignore[overload-overlap]
    @overload
    def __eq__(self, other: object) -> Filter: ...
    def __eq__(self, other: object) -> bool | Filter:
        if isinstance(other, Property):
            return self.key == other.key and self.value_type is other.value_type
        return compare(self, Operator.EQ, other)

    @overload  # type: ignore[override]
    def __ne__(self, other: Property) -> bool: ...  # type: ignore[overload-overlap]
    @overload
    def __ne__(self, other: object) -> Filter: ...
    def __ne__(self, other: object) -> bool | Filter:
        if isinstance(other, Property):
            return not self == other
        return compare(self, Operator.NE, other)

    def __lt__(self, other: object) -> Filter:
        return compare(self, Operator.LT, other)

    def __le__(self, other: object) -> Filter:
        return compare(self, Operator.LE, other)

    def __gt__(self, other: object) -> Filter:
        return compare(self, Operator.GT, other)

    def __ge__(self, other: object) -> Filter:
        return compare(self, Operator.GE, other)

    def __hash__(self) -> int:
        return hash(self.key)

    def __and__(self, other: object) -> NoReturn:
        # & and | bind tighter than ==, so missing parentheses lead here.
        raise TypeError(
            f"{self.dotted_name} alone is not a filter. Put parentheses around each comparison, as in "
            '(Region == "EU") & (Priority == 1); for a bitwise AND write Flags.bitand(4).'
        )

    __rand__ = __or__ = __ror__ = __and__

    def __invert__(self) -> NoReturn:
        raise TypeError(NO_NOT)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dotted_name!r}, {self.value_type.python_type.__name__})"

    def __reduce__(self) -> Any:
        return partial(Property.from_key, sensitive=self.sensitive), (self.key, self.value_type)


class DistinguishedField(Property[str]):
    """A distinguished field: a field of the body, stored in the context by its path. Written, never promoted (CTX-11).

    ``message.context.write(DistinguishedField("/order/note"), "as long as it likes")``
    """

    __slots__ = ()

    def __init__(self, path: str) -> None:
        if not path or "#" in path:
            raise BadValue(f"{path!r} is not the path of a field.", hint="A path is not empty and has no '#'.")
        self._identify(DISTINGUISHED_NAMESPACE, path, ValueType.STR)
        self.sensitive = False

    def check(self, value: object, *, promoted: bool = True) -> Value:
        if promoted:
            raise BadValue(
                f"{self.name} is a distinguished field, which cannot be promoted.",
                hint="Declare a Property to route by, or write the field.",
            )
        return super().check(value, promoted=False)
