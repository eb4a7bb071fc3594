"""Pretraining: masked language models from random weights."""
