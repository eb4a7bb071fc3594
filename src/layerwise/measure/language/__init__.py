"""Evaluation text, losses, minimal pairs and benchmarks of language models."""
