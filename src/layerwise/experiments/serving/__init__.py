"""Serving a model from a swarm, and asking how it does."""
