"""Speculative decoding: what a draft was expected to gain, and what it gained."""
