"""A study of growth training is tried on what a training is tried on."""

from __future__ import annotations

from experiments.growth.conftest import checkpoint, config, texts

__all__ = ["checkpoint", "config", "texts"]
