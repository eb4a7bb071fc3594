"""Gradients: what one forward and one backward pass say of every layer."""
