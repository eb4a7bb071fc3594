"""Suites of tests: minimal pairs, GLUE, MSGS, and generated ones of the same kinds."""
