"""Robustness: what models survive of other layer orders and missing layers, trained for it or not."""
