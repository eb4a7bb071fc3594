"""The documents that the options of a training name: those to train on, and those that are held out."""

from __future__ import annotations

from pathlib import Path

from layerwise.data.file_stamps import code_digest
from layerwise.data.text import python_stdlib
from layerwise.data.text.babylm_cleaning import cleaned
from layerwise.data.text.corpus import BABYLM, Corpus, babylm_split, read_corpus, source_files
from layerwise.data.text.division import Division, divided, division
from layerwise.data.text.documents import Document
from layerwise.data.text.sources.hub_texts import HubText, is_hub_text
from layerwise.data.text.token_cache.token_cache import ReadText, TextSource
from layerwise.errors import DataError
from layerwise.experiments.options.data import CorpusOptions


def divided_documents(options: CorpusOptions, seed: int, corpus: Corpus | None = None) -> tuple[str, Division]:
    """The name of the text, and its documents in three parts; without a text, those of the standard library.

    `seed` draws what is held out where no text of its own was given for it. An opened `corpus` stands in place of
    `--text`. Raises `DataError` where held-out texts are given to no text, and for files of BabyLM that are of several
    splits and all to be trained on.
    """
    if options.text is None and corpus is None:
        if options.clean:
            raise DataError("--clean is for the files of BabyLM: give them, --text FOLDER")
        if options.validation is not None or options.test is not None:
            raise DataError("--validation and --test are held out of the training of a text: give it, --text PATH")
        return "standard library", _standard_library(seed)
    prepared = cleaned if options.clean else lambda text: text
    if corpus is None:
        assert options.text is not None
        corpus = read_corpus(options.text)
    held_out = (None if path is None else prepared(read_corpus(path)) for path in (options.validation, options.test))
    parts = division(prepared(corpus), *held_out, seed=seed)
    _check_one_split(options.text, parts.parts["train"])
    return corpus.name, parts


def text_source(options: CorpusOptions, seed: int, corpus: Corpus | None = None) -> TextSource:
    """What `divided_documents` reads, and the files that it is read from, for the token cache.

    An opened `corpus` and the standard library are in no files of their own, so they are read at every start.
    """

    def read() -> ReadText:
        name, division = divided_documents(options, seed, corpus)
        return ReadText(name, division.parts, division.notes)

    paths = (options.text, options.validation, options.test)
    settings = {
        "paths": [None if path is None else str(path.absolute()) for path in paths],
        "seed": seed,
        "clean": options.clean,
        "versions": [HubText.parse(str(path)).version() for path in paths if path is not None and is_hub_text(path)],
        "program": code_digest(Path(__file__)),
    }
    if options.text is None or corpus is not None:
        return TextSource(read, settings)
    return TextSource(
        read, settings, lambda: [file for path in paths if path is not None for file in source_files(path)]
    )


def _check_one_split(text: Path | None, documents: tuple[Document, ...]) -> None:
    files = {each.part_of for each in documents if each.part_of is not None}
    counts = {ending: sum(babylm_split(file) == ending for file in files) for ending in BABYLM}
    if counts[".train"] and counts[".dev"] + counts[".test"]:
        listed = ", ".join(f"{count} {ending}" for ending, count in counts.items() if count)
        raise DataError(
            f"{text or 'the text'} holds files to train on and files to hold out ({listed}), and all would be trained "
            "on: give the folder of the .train files as --text, and the others as --validation and --test"
        )


def _standard_library(seed: int) -> Division:
    seen, held_out = (
        tuple(Document(f"stdlib/{each.module}", each.text) for each in python_stdlib.documents(split, "prose"))
        for split in python_stdlib.SPLITS
    )
    train, validation = divided(Corpus("stdlib", seen), (0.9, 0.1), seed)
    return Division({"train": train, "validation": validation, "test": held_out})
