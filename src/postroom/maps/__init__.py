"""Maps: from a message of one type to a message of another, at receive ports and send ports.

    app.receive_port("In", maps=[maps.Xslt("order-to-invoice.xslt", source="http://a#Order", target="http://b#Invoice")])

What a map is and how it travels is here; nothing in here knows ports, Spark or the database.
"""

from __future__ import annotations

from postroom.maps.contract import Map
from postroom.maps.definitions import Python, Xslt
from postroom.maps.trying import try_out

__all__ = ["Map", "Python", "Xslt", "try_out"]
