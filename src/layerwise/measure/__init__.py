"""Measurements: pure functions from a stack and batches to rows."""
