"""Losses of models whose layers are changed, removed, reordered or mixed."""
