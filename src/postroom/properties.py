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
from typing import Any

from postroom.errors import BadValue
from postroom.filters.expression import Comparable
from postroom.namespaces import DISTINGUISHED_NAMESPACE, PREFIXES, split_key
from postroom.values import Value, ValueType, check_promoted, check_value

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOTTED = re.compile(rf"{_NAME.pattern}(\.{_NAME.pattern})+")


class Property(Comparable):
    """A property that messages can have and filters can compare.

    ``Property("Orders.Total", Decimal)``; with ``namespace=`` the first argument is the name alone. The values of a
    ``sensitive`` property take part in routing and are never shown.
    """

    __slots__ = ("sensitive",)

    def __init__(self, name: str, type: type, *, namespace: str | None = None, sensitive: bool = False) -> None:
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
        super().__init__(namespace=namespace, name=name, value_type=ValueType.of(type))
        self.sensitive = sensitive

    @classmethod
    def from_key(cls, key: str, value_type: ValueType, *, sensitive: bool = False) -> Property:
        """Return the property of a stored key (``Orders#Region``)."""
        namespace, name = split_key(key)
        if namespace == DISTINGUISHED_NAMESPACE:
            return DistinguishedField(name)
        return cls(name, value_type.python_type, namespace=namespace, sensitive=sensitive)

    def check(self, value: object, *, promoted: bool = True) -> Value:
        """Return ``value`` in the form that this property stores. Raise BadValue if it does not fit."""
        try:
            checked = self.canonical(check_value(self.value_type, value))
            return check_promoted(checked) if promoted else checked
        except BadValue as error:
            raise BadValue(f"{self.dotted}: {error.what}", hint=error.hint) from None

    def __reduce__(self) -> Any:
        return partial(Property.from_key, sensitive=self.sensitive), (self.key, self.value_type)


class DistinguishedField(Property):
    """A distinguished field: a field of the body, stored in the context by its path. Written, never promoted (CTX-11).

    ``message.context.write(DistinguishedField("/order/note"), "as long as it likes")``
    """

    __slots__ = ()

    def __init__(self, path: str) -> None:
        if not path or "#" in path:
            raise BadValue(f"{path!r} is not the path of a field.", hint="A path is not empty and has no '#'.")
        Comparable.__init__(self, namespace=DISTINGUISHED_NAMESPACE, name=path, value_type=ValueType.STR)
        self.sensitive = False

    def check(self, value: object, *, promoted: bool = True) -> Value:
        if promoted:
            raise BadValue(
                f"{self.name} is a distinguished field, which cannot be promoted.",
                hint="Declare a Property to route by, or write the field.",
            )
        return super().check(value, promoted=False)
