"""A study of growth training is tried on what a training is tried on."""

from studies.growth.conftest import checkpoint, config, texts

__all__ = ["checkpoint", "config", "texts"]
