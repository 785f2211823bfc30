"""The two-pass matcher: immutable segments of subscriptions as arrays, and how a batch meets them.

Predicates are not compared with values but with *ranks* (constants.py). Every comparison except ``!=`` and the
bitwise AND is then an interval of ranks, whatever the type, and both passes are integer arithmetic over arrays.
"""
