"""Lookups: tables of the newest message of each key, filled by publish and subscribe, and read by components, maps,
orchestrations and programs.

    Customers = app.lookup("Customers", key=CustomerId, filter=Kind == "customer")

    customer = Customers.get("C-17")        # the message, or None

This is the caching service of BizTalk. Hosts apply the messages (``hosts/caching.py``), and each process reads entries
through a cache (``cache.py``).
"""

from postroom.lookups.lookup import Lookup, lookup

__all__ = ["Lookup", "lookup"]
