"""Chaos for orchestrations: hosts are killed and frozen while they run instances of the example procurement.

`suppliers` publishes the orders, offers and confirmations. `findings` compares what the instances did with what they
were sent. `run` starts all of it. The faults are those of `delivery_chaos`.
"""
