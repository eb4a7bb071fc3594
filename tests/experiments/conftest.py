"""What experiments are tried on: the tiny model and the texts of the command line's tests."""

from __future__ import annotations

from cli.conftest import model, own_model, plain_terminal, texts

__all__ = ["model", "own_model", "plain_terminal", "texts"]
