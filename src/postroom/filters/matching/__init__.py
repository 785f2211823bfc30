"""The two-pass matcher of the subscription index: subscriptions as arrays, matched with a batch of messages.

Predicates are compared with *ranks* instead of values (filters/columns.py). So every comparison except ``!=`` and the
bitwise AND is an interval of ranks for every type, and both passes are integer arithmetic over arrays.
"""
