"""Nodes: what holds layers and runs them, and their double in one process."""
