"""Rehearsal: a swarm of a model, whose nodes die while it answers; what is left of quality and latency."""
