"""Measures from one forward and one backward pass."""
