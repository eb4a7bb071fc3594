"""Options that say which examples a model is trained or evaluated on, texts or images, and which text is scored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from layerwise.errors import DataError
from layerwise.experiments.option import option

if TYPE_CHECKING:
    from layerwise.data.text.corpus import Corpus


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """A text to train on, and what is held out of it."""

    text: Path | None = option(None, metavar="PATH")
    validation: Path | None = option(
        None, "Text that selects checkpoints; by default a share of --text.", metavar="PATH", rare=True
    )
    test: Path | None = option(
        None, "Text that is reported; by default half of --validation, or a share of --text.", metavar="PATH", rare=True
    )
    clean: bool = option(False, "Clean files of BabyLM, each as its corpus needs (extra: babylm).", rare=True)


@dataclass(frozen=True, kw_only=True)
class DataOptions(CorpusOptions):
    """Images or a text, whichever the model takes."""

    images: str | None = option(
        None, "Folder of class folders, hub dataset, or digits.", metavar="LOCATION", is_location=True
    )
    on_bad_image: Literal["refuse", "skip"] = option(
        "refuse", "What is done about images that cannot be read.", setting=True
    )
    max_length: int | None = option(None, metavar="N", least=2, rare=True)
    limit: int | None = option(None, metavar="N", least=1, rare=True)
    select_on: Literal["held-out", "reported"] = option(
        "held-out", "Examples that select checkpoints: some of their own, or those that are reported (as in papers).",
        rare=True,
    )  # fmt: skip


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
