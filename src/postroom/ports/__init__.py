"""Receive locations and send ports, as hosts and pipelines use them."""
