"""Activations: what hidden states look like from layer to layer."""
