"""The subscription language: what a filter says, how it is written, and which messages it meets."""
