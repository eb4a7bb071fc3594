"""Experiments on a cluster: their workers, what those open, and the pieces that they carry out."""
