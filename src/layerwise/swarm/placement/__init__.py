"""Placement: which node holds which layers, and how they get there."""
