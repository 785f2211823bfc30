"""Receive pipelines with components: definition, stages, and the resume of a suspended document."""
