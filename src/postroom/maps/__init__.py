"""Maps transform a message of one type into a message of another, at receive ports and send ports.

    app.receive_port("In", maps=[maps.Xslt("order-to-invoice.xslt", source="http://a#Order",
    target="http://b#Invoice")])

This package defines maps and runs them. It does not depend on ports, Spark or the database.
"""

from __future__ import annotations

from postroom.maps.contract import Map
from postroom.maps.definitions import Python, Xslt
from postroom.maps.port_maps import try_out

__all__ = ["Map", "Python", "Xslt", "try_out"]
