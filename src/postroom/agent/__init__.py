"""The Message Agent: programs, locations, resumed and failed messages are published by one function, ``publish``."""
