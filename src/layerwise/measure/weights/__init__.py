"""Weights: how the weight tensors of layers are structured, related and predictable."""
