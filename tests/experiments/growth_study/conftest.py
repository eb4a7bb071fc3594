"""A study of growth training is tried on what a training is tried on."""

from experiments.growth.conftest import checkpoint, config, texts

__all__ = ["checkpoint", "config", "texts"]
