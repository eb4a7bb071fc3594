"""Healing: what a plan loses, what training brings back, and what the same training gives the whole model."""
