"""Options that say which text is scored, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from layerwise.errors import DataError
from layerwise.experiments.option import option

if TYPE_CHECKING:
    from layerwise.data.text.corpus import Corpus

BATCH_TOKENS = 4096
"""Tokens that run together, unless `--batch-tokens` says otherwise."""


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The text that a model is scored on."""

    text: Path | None = option(None, metavar="PATH")
    tokens: int | None = option(None, "Score at most N tokens, spread over the documents.", metavar="N", least=1)
    max_length: int | None = option(None, metavar="N", least=2, rare=True)
    batch_tokens: int | None = option(None, metavar="N", least=1, rare=True)

    def corpus(self, model: str) -> Corpus:
        """The text: the one that was named, or the demo's own. Raises `DataError` for a model that has none."""
        from layerwise.data.text.corpus import read_corpus
        from layerwise.data.text.demo_corpus import demo_corpus

        if self.text is not None:
            return read_corpus(self.text)
        if model == "demo":
            return demo_corpus()
        raise DataError(
            "a text to score is needed: --text FILE_OR_FOLDER (only demo has its own); a model of images is measured "
            "by layerwise robustness MODEL --images FOLDER"
        )
