"""Speculative decoding: a draft chosen or given, and what it is worth beside `generate` and an assistant."""
