"""Benchmarks. Every figure is a ratio of two sides that are measured alternately in one run."""
