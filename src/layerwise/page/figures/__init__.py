"""Figures of the report as plain data, in light colors."""
