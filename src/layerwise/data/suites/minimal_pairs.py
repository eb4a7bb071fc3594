"""Minimal pairs from local files: two texts that differ in one property, one of them acceptable.

    blimp        `sentence_good`, `sentence_bad`, `field`, `linguistics_term`, `UID`, every UID one of BLiMP's 67
    supplement   `sentence_good`, `sentence_bad`; the five files that accompany BLiMP, each of which is one paradigm
    ewok         two contexts and two targets (`Context1`, `Context2`, `Target1`, `Target2`, `Domain`): each target is
                 scored under both contexts

Any other table needs `sentence_good` and `sentence_bad`.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from layerwise.bounded import MAX_TEXT_SIZE, UnreadableError, check_file
from layerwise.data.records import FileRecord, find_table_suffix, read_tables, walk_files
from layerwise.errors import DataError, near_matches

TABLES: Mapping[str, Any] = tomllib.loads(files(__package__).joinpath("suites.toml").read_text(encoding="utf-8"))
"""BLiMP's paradigms, and the words of the bundled suites."""

GOOD, BAD = "sentence_good", "sentence_bad"
PHENOMENA: Mapping[str, Sequence[str]] = TABLES["blimp"]
"""BLiMP's paradigms (`UID`) by phenomenon (`linguistics_term`), as in Warstadt et al. 2020. Only pairs with these names
give a BLiMP score."""

PARADIGMS = frozenset(uid for uids in PHENOMENA.values() for uid in uids)
PAIRS = 1000

SUPPLEMENT = frozenset(
    {"hypernym", "qa_congruence_easy", "qa_congruence_tricky", "subject_aux_inversion", "turn_taking"}
)
"""The files of the supplement to BLiMP; each is one paradigm."""


@dataclass(frozen=True, slots=True)
class MinimalPair:
    """An acceptable and an unacceptable text, and the property that they test.

    `paradigm` is BLiMP's UID, `term` the phenomenon, and `field` its part of grammar. The characters before
    `good_start` and `bad_start` are context and are not scored.
    """

    good: str
    bad: str
    paradigm: str
    term: str = ""
    field: str = ""
    good_start: int = 0
    bad_start: int = 0

    @property
    def equal(self) -> bool:
        return (self.good, self.good_start) == (self.bad, self.bad_start)

    @property
    def phenomenon(self) -> str:
        """The `term`, or the `field` if there is no term, or else the `paradigm`.

        The term comes first because BLiMP spreads `npi_licensing` over two fields.
        """
        return self.term or self.field or self.paradigm


@dataclass(frozen=True)
class PairSet:
    """Minimal pairs, whose scores are stored under the name `suite`. `origin` describes which pairs were selected."""

    suite: str
    origin: str
    pairs: tuple[MinimalPair, ...]

    def __post_init__(self) -> None:
        if not self.pairs:
            raise DataError(f"{self.origin} must have at least one pair, got none.")

    @property
    def equal(self) -> int:
        """Number of pairs whose two texts are equal. Each counts as half correct."""
        return sum(pair.equal for pair in self.pairs)

    @cached_property
    def digest(self) -> str:
        return hash_pairs(self.pairs)

    def paradigms(self) -> dict[str, tuple[MinimalPair, ...]]:
        by_paradigm: dict[str, list[MinimalPair]] = {}
        for pair in self.pairs:
            by_paradigm.setdefault(pair.paradigm, []).append(pair)
        return {name: tuple(pairs) for name, pairs in by_paradigm.items()}

    def first(self, limit: int | None) -> PairSet:
        """Return the first `limit` pairs of each paradigm, and note this in `origin`."""
        if limit is None:
            return self
        pairs = tuple(pair for each in self.paradigms().values() for pair in each[:limit])
        if len(pairs) == len(self.pairs):
            return self
        origin = f"{self.origin}, the first {limit:,} pairs of each paradigm ({len(pairs):,} of {len(self.pairs):,})"
        return PairSet(self.suite, origin, pairs)


def hash_pairs(pairs: Iterable[MinimalPair]) -> str:
    checksum = hashlib.sha256()
    for pair in pairs:
        cells = (pair.good, pair.bad, pair.paradigm, pair.term, pair.field, pair.good_start, pair.bad_start)
        checksum.update("\x1f".join(map(str, cells)).encode() + b"\x1e")
    return checksum.hexdigest()


def read_pairs(paths: Sequence[Path], *, password: str | None = None) -> PairSet:
    """Read minimal pairs from tables (`.jsonl`, `.csv`, `.tsv`, also `.gz`) or from EWoK's archive.

    The suite is detected from the content: `blimp`, `supplement`, `ewok`, or `pairs NAME`. Raises `DataError` for
    malformed rows, with file, line and column, and if an archive is encrypted and `password` is missing.
    """
    if not paths:
        raise DataError("At least one file of minimal pairs is required, got none.")
    tables: list[tuple[str, tuple[FileRecord, ...]]] = []
    for path in paths:
        try:
            check_file(path, MAX_TEXT_SIZE)
        except UnreadableError as fault:
            raise DataError(f"{path} {fault}. Pass a file of minimal pairs.") from fault
        tables.extend(read_tables(path, password))
    return _named(tables, paths[0].name if len(paths) == 1 else paths[0].parent.name)


def _named(tables: Sequence[tuple[str, tuple[FileRecord, ...]]], name: str) -> PairSet:
    records = [record for _, rows in tables for record in rows]
    if all({"Context1", "Context2", "Target1", "Target2"} & set(record.columns) for record in records):
        return PairSet("ewok", f"EWoK ({name})", tuple(pair for record in records for pair in _worlds(record)))
    pairs = tuple(_pair(record, _stem(table)) for table, rows in tables for record in rows)
    if all({"UID", "linguistics_term", "field"} <= set(record.columns) for record in records):
        uids = {pair.paradigm for pair in pairs}
        if uids <= PARADIGMS:
            return PairSet("blimp", _extent(pairs, len(uids)), pairs)
    if {_stem(table) for table, _ in tables} <= SUPPLEMENT:
        stems = sorted({_stem(table) for table, _ in tables})
        part = "" if len(stems) == len(SUPPLEMENT) else f", {len(stems)} of {len(SUPPLEMENT)} files: {', '.join(stems)}"
        return PairSet("supplement", f"the supplement to BLiMP{part}", pairs)
    return PairSet(f"pairs {name}", name, pairs)


def _extent(pairs: Sequence[MinimalPair], paradigms: int) -> str:
    total = len(PARADIGMS)
    if (paradigms, len(pairs)) == (total, total * PAIRS):
        return "BLiMP"
    return f"a part of BLiMP: {paradigms} of {total} paradigms, {len(pairs):,} of {total * PAIRS:,} pairs"


def _pair(record: FileRecord, table: str) -> MinimalPair:
    return MinimalPair(
        record.text(GOOD),
        record.text(BAD),
        paradigm=record.text("UID") if "UID" in record.columns else table,
        term=record.text("linguistics_term") if "linguistics_term" in record.columns else "",
        field=record.text("field") if "field" in record.columns else "",
    )


def _worlds(record: FileRecord) -> Iterator[MinimalPair]:
    contexts = (record.text("Context1"), record.text("Context2"))
    domain = record.text("Domain")
    for index, column in enumerate(("Target1", "Target2")):
        target = record.text(column)
        own, other = contexts[index], contexts[1 - index]
        yield MinimalPair(
            f"{own} {target}",
            f"{other} {target}",
            paradigm=domain,
            term=domain,
            field="world knowledge",
            good_start=len(own) + 1,
            bad_start=len(other) + 1,
        )


def _stem(name: str) -> str:
    return PurePosixPath(name.removesuffix(".gz")).stem


# Usual names of a suite's files.
_LAYOUTS: dict[str, tuple[str, ...]] = {
    "blimp": ("blimp.jsonl", "blimp.jsonl.gz", "blimp_filtered.jsonl", "blimp_filtered.jsonl.gz"),
    "supplement": (),
    "ewok": ("ewok.zip", "ewok_filtered.zip"),
}
_STEMS: dict[str, frozenset[str]] = {"blimp": PARADIGMS, "supplement": SUPPLEMENT, "ewok": frozenset()}
SUITES = tuple(_LAYOUTS)


def find_pairs(suite: str, folder: Path, *, password: str | None = None) -> PairSet:
    if suite not in SUITES:
        raise DataError(f"unknown suite {suite!r}; {near_matches(suite, SUITES)}")
    if not folder.is_dir():
        raise DataError(f"{folder} is not a directory. Set --data to the directory of the evaluation sets.")
    paths = sorted(path for path in walk_files(folder) if find_table_suffix(path.name) or path.suffix == ".zip")
    for name in _LAYOUTS[suite]:
        files = sorted((path for path in paths if path.name == name), key=lambda path: (len(path.parts), path))
        if files:
            return _check_suite(suite, read_pairs(files[:1], password=password), files[0])
    loose = [path for path in paths if find_table_suffix(path.name) and _stem(path.name) in _STEMS[suite]]
    if loose:
        siblings = [path for path in loose if path.parent == loose[0].parent]
        return _check_suite(suite, read_pairs(siblings, password=password), loose[0].parent)
    names = {
        "blimp": f"{' or '.join(_LAYOUTS['blimp'])}, or one file per paradigm (adjunct_island.jsonl, ...)",
        "supplement": ", ".join(f"{name}.jsonl" for name in sorted(SUPPLEMENT)),
        "ewok": " or ".join(_LAYOUTS["ewok"]),
    }[suite]
    raise DataError(f"{folder} has no {suite}: expected {names}. Set --data to the directory that contains it.")


def _check_suite(suite: str, pairs: PairSet, path: Path) -> PairSet:
    if pairs.suite != suite:
        raise DataError(
            f"{path} is named like {suite}, but its columns or names differ. Pass --suite {path} to score it as your "
            "own pairs."
        )
    return pairs
