"""Interventions: a model runs with layers changed, removed, reordered or mixed, and its losses are compared."""
