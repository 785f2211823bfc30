"""Commands for send ports, groups, orchestrations, receive locations and subscriptions."""
