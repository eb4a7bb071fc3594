"""Executors: ways to run a plan, through a graph of many plans or in place in the model's own forward."""
