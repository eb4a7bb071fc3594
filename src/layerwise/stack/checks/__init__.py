"""Checks that a model or a checkpoint must pass before its layers can run under a plan."""
