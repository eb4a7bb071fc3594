"""Options that say which examples a model is trained or evaluated on: texts, or images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from layerwise.experiments.option import option


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
