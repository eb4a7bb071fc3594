"""The results of a run, stored in SQLite, and their summary."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from tools.mutation.killing import Outcome
from tools.mutation.mutants import Mutant

KILLED = ("killed", "timeout")
ALIVE = ("survived", "uncovered")
_TABLES = """
create table if not exists tree (digest text not null);
create table if not exists results (
    mutant integer primary key, place text not null, seconds real not null, outcome text not null,
    killer text not null, message text not null, ran integer not null, covering integer not null
);
"""


class Results:
    """The outcomes of one tree by mutant."""

    def __init__(self, file: Path, digest: str) -> None:
        """Open the results in `file`; results of a tree with another `digest` are rejected."""
        self._database = sqlite3.connect(file)
        self._database.executescript(_TABLES)
        kept = self._database.execute("select digest from tree").fetchone()
        if kept is None:
            self._database.execute("insert into tree values (?)", (digest,))
            self._database.commit()
        elif kept[0] != digest:
            raise SystemExit(f"{file} holds the results of another tree; choose another folder with --results")

    def add(self, mutant: int, site: str, seconds: float, outcome: Outcome) -> None:
        """Store one outcome."""
        row = (mutant, site, seconds, outcome.outcome, outcome.killer, outcome.message, outcome.ran, outcome.covering)
        self._database.execute("insert or replace into results values (?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._database.commit()

    def rows(self) -> dict[int, dict[str, object]]:
        """Return all outcomes by mutant number."""
        with closing(self._database.execute("select * from results order by mutant")) as cursor:
            names = [column[0] for column in cursor.description]
            return {row[0]: dict(zip(names, row, strict=True)) for row in cursor}


def score(mutants: Sequence[Mutant], rows: Mapping[int, Mapping[str, object]], missing: Mapping[int, str]) -> str:
    """Summarize scores per package and in total, then list surviving and missing mutants."""
    rooms = sorted({_room(mutant) for mutant in mutants})
    lines = [f"{'':8} {'mutants':>8} {'killed':>8} {'timeout':>8} {'survived':>9} {'uncovered':>10} {'to run':>8}"]
    for room in (*rooms, "all"):
        own = [mutant.id for mutant in mutants if room in (_room(mutant), "all")]
        counts = Counter(str(rows[each]["outcome"]) for each in own if each in rows)
        left = len(own) - sum(counts[each] for each in (*KILLED, *ALIVE))
        lines.append(
            f"{room:8} {len(own):8} {counts['killed']:8} {counts['timeout']:8} {counts['survived']:9} "
            f"{counts['uncovered']:10} {left:8}"
        )
    for mutant in mutants:
        if mutant.id in rows and rows[mutant.id]["outcome"] in ALIVE:
            row = rows[mutant.id]
            lines.append(
                f"{row['outcome']} {mutant.id}: {row['place']}: {mutant.text[:70]!r} -> {mutant.mutated[:70]!r}"
            )
        elif mutant.id in missing:
            lines.append(f"not located {mutant.id}: {mutant.file} {mutant.definition}: {missing[mutant.id]}")
    return "\n".join(lines)


def find_lost(mutants: Sequence[Mutant], rows: Mapping[int, Mapping[str, object]]) -> list[str]:
    """Return a line for every mutant that the tests killed before and do not kill now."""
    alive = [each for each in mutants if each.killed and each.id in rows and rows[each.id]["outcome"] in ALIVE]
    return [f"no longer killed: {each.id} {rows[each.id]['place']}" for each in alive]


def _room(mutant: Mutant) -> str:
    """Return the package directory of the mutant."""
    return Path(mutant.file).parts[2]
