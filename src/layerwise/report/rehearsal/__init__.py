"""Rehearsals: what is left of a swarm's quality and latency as its nodes die."""
