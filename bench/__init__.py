"""Measurements. Every figure is a ratio of two things measured in one run, side by side, in turn."""
