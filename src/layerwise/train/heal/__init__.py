"""Healing: train a model under a plan to make up for the layers that the plan skips."""
