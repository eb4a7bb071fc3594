"""Healing: train a model under a plan to compensate for the layers that the plan skips."""
