"""Measures of hidden states and attention."""
