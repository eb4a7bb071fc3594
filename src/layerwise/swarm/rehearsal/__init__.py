"""Rehearsals: many requests on a swarm whose nodes fail by a schedule, and what was left of each."""
