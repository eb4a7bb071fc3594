"""Figures of the report as plain data, in the colors of the light theme."""
