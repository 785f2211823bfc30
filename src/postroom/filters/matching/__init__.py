"""The two-pass matcher: immutable segments of subscriptions as arrays, matched with a batch of messages.

Predicates are compared with *ranks* instead of values (ranks.py). So every comparison except ``!=`` and the bitwise
AND is an interval of ranks for every type, and both passes are integer arithmetic over arrays.
"""
