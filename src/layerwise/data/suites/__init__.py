"""Evaluation suites: minimal pairs, GLUE, MSGS, and generated suites of the same kinds."""
