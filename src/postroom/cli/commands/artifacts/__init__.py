"""Commands for send ports, groups, orchestrations, lookups, receive locations and subscriptions."""
