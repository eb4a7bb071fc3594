"""Measures of weight tensors over depth."""
