"""Estimates with intervals, tests and verdicts."""
