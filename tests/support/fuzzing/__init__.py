"""Fuzzing of the parsers: a target per parser, mutations of valid inputs, and a process that runs a target."""
