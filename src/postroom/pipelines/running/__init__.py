"""Runs a receive pipeline: the formats, the stages with components, and the resume of a suspended document."""
