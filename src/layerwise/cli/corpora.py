"""The texts that a training's options name: what is trained on, and what is held out, where that is another text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerwise.data import stdlib
from layerwise.data.corpus import BABYLM, Corpus, read_corpus
from layerwise.data.division import Division, divided, division
from layerwise.data.documents import Document
from layerwise.errors import DataError


@dataclass(frozen=True, slots=True)
class Corpora:
    """Where the texts lie, and the seed that draws what is held out where no text of its own was given for it."""

    text: Path | None = None
    validation: Path | None = None
    test: Path | None = None
    seed: int = 0

    def divided(self) -> tuple[str, Division]:
        """The name of the text, and its documents in three parts; without a path, those that every machine has.

        Raises `DataError` where held-out texts are given to no text, and for files of BabyLM that are of several splits
        and all to be trained on.
        """
        if self.text is None:
            if self.validation is not None or self.test is not None:
                raise DataError("--validation and --test are held out of the training of a text: give it, --text PATH")
            return "standard library", _everywhere(self.seed)
        corpus = read_corpus(self.text)
        validation, test = (None if path is None else read_corpus(path) for path in (self.validation, self.test))
        found = division(corpus, validation, test, seed=self.seed)
        self._check_one_split(found.parts["train"])
        return corpus.name, found

    def _check_one_split(self, documents: tuple[Document, ...]) -> None:
        files = {each.part_of.removesuffix(".gz") for each in documents if each.part_of is not None}
        counts = {ending: sum(file.endswith(ending) for file in files) for ending in BABYLM}
        if counts[".train"] and counts[".dev"] + counts[".test"]:
            listed = ", ".join(f"{count} {ending}" for ending, count in counts.items() if count)
            raise DataError(
                f"{self.text} holds files to train on and files to hold out ({listed}), and all would be trained on: "
                "give the folder of the .train files as --text, and the others as --validation and --test"
            )


def _everywhere(seed: int) -> Division:
    seen, held_out = (
        tuple(Document(f"stdlib/{each.module}", each.text) for each in stdlib.documents(split, "prose"))
        for split in stdlib.SPLITS
    )
    train, validation = divided(Corpus("stdlib", seen), (0.9, 0.1), seed)
    return Division({"train": train, "validation": validation, "test": held_out})
