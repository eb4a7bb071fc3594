"""Carry out studies: runs, tasks, progress, resuming, and YAML recipes."""
