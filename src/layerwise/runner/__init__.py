"""Runs, tasks, progress, resuming and YAML recipes."""
