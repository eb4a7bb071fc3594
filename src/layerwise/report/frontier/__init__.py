"""Frontiers: what a model loses for the milliseconds that it saves, an arm a colour, and what is best."""
