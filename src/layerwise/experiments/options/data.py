"""Options that say which examples a model is trained or evaluated on: texts, or images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from layerwise.experiments.option import option


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """A text to train on, and what is held out of it."""

    text: Path | None = option(None, "Text file, a folder of them, or hf:DATASET.", metavar="PATH")
    validation: Path | None = option(
        None, "Text that selects checkpoints; by default a share of --text.", metavar="PATH"
    )
    test: Path | None = option(
        None, "Text that is reported; by default half of --validation, or a share of --text.", metavar="PATH"
    )
    clean: bool = option(False, "Clean files of BabyLM, each as its corpus needs (extra: babylm).")


@dataclass(frozen=True, kw_only=True)
class DataOptions(CorpusOptions):
    """Images or a text, whichever the model takes."""

    images: str | None = option(
        None, "Folder of class folders, a dataset of the hub, or digits.", metavar="LOCATION", is_location=True
    )
    on_bad_image: Literal["refuse", "skip"] = option("refuse", "What is done about images that cannot be read.")
    max_length: int | None = option(None, "Tokens in a window of text; 256 by default.", metavar="N", least=2)
    limit: int | None = option(None, "Images in a split, at most.", metavar="N", least=1)
    select_on: Literal["held-out", "reported"] = option(
        "held-out", "Examples that select checkpoints: some of their own, or those that are reported (as in papers)."
    )
