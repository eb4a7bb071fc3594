"""Checks: what a model or a checkpoint must show before its layers may be re-planned."""
