"""Measurements: pure functions that take a stack and batches, and return result rows."""
