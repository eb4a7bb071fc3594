"""A published claim as a row, its prose from Markdown, and the one function by which every claim is decided.

A row names the facts that its rule reads and holds its cases in order: each is a verdict, and the condition on where
those facts lie. What a person reads of a claim stands in `<paper>.md` beside this file, under a heading `## key: name`:
what was published, where, the rule and what the rule needs, the figures, and a reason for every case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from layerwise.report.claims.claim import NOT_MEASURED, OPEN, Position, Verdict
from layerwise.report.claims.contrasts import Contrasts, Facts, Read, is_known, states
from layerwise.report.data import ReportData

Reads = Callable[[ReportData], Facts | None]
"""From the rows of a run to the facts that a rule reads; `None` where these were not measured."""


@dataclass(frozen=True, slots=True)
class Prose:
    """What a person reads of a claim.

    The name, the published finding and its place, the rule, and what measures the rows that it needs. `figures` is a
    template of the facts with the numbers, `power` one with the smallest contrast that 80 of 100 such runs would have
    found; `bare` and `uncertain` are the numbers and the reason where a fact has no interval that must have one.
    `reasons` are those of the cases, each with its verdict, the last one where no case is met.
    """

    name: str
    statement: str
    citation: str
    rule: str
    needs: str
    figures: str
    power: str
    bare: str
    uncertain: str
    reasons: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, name: str, paragraphs: list[str]) -> Prose:
        """The prose of a section: two paragraphs, some that begin with what they are, and a list of reasons."""
        *lines, items = paragraphs
        statement, citation, *rest = map(_line, lines)
        named = {label: text.strip() for label, _, text in (line.partition(":") for line in rest)}
        reasons = tuple(_line(item).partition(": ")[::2] for item in f"\n{items}".split("\n- ")[1:])
        figures = named["Figures"]
        return cls(
            name, statement, citation, named["Rule"], named["Needs"], figures, named.get("Power", ""),
            named.get("Figures without intervals", figures), named.get("Without intervals", ""), reasons,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Some:
    """The condition that one of several facts, or more, lies at one of these positions."""

    positions: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The condition that a fact does not lie there, or was not measured."""

    position: Position


Condition = Position | tuple[Position, ...] | bool | Some | Not
"""A position, or several of which it is one: then every fact of several lies there. `ABSENT`: none was measured."""
ABSENT: tuple[Position, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A verdict, and the conditions on facts that must all be met."""

    verdict: Verdict
    conditions: Mapping[str, Condition]

    def holds(self, facts: Facts) -> bool:
        """Whether every condition is met."""
        return all(_is_met(condition, facts.get(name)) for name, condition in self.conditions.items())


def _is_met(condition: Condition, fact: object) -> bool:
    if isinstance(condition, bool):
        return condition is bool(fact)
    at = states(fact)
    if isinstance(condition, Some):
        return not at.isdisjoint(condition.positions)
    if isinstance(condition, Not):
        return at != {condition.position}
    wanted = {condition} if isinstance(condition, str) else set(condition)
    return bool(at) == bool(wanted) and at <= wanted


def case(verdict: Verdict, **conditions: Condition) -> Case:
    """The case in which the facts named meet these conditions."""
    return Case(verdict, conditions)


def unlearned() -> Case:
    """The first case of every claim about training: a model that is not shown to beat its null decides nothing.

    The fact `skill` is how well it does, and its bound what the null reaches of that.
    """
    return case(OPEN, skill=Not("above"))


@dataclass(frozen=True, slots=True)
class Published:
    """A claim as it was published, and how it is decided here: a row of the table.

    `key` names it in rows and in the prose. The first of `cases` that holds decides; the last always does, and is not
    resolvable. Where a fact of `certain` has no interval nothing is decided. `number` is what the paper itself reports,
    in the terms of the figures.
    """

    key: str
    reads: Reads
    certain: tuple[str, ...] = ()
    number: str = ""
    paper: str = ""
    cases: tuple[Case, ...] = (Case(OPEN, {}),)

    def by(self, *cases: Case) -> Published:
        """The claim, decided by these cases in their order, and not resolvable where none is met."""
        return replace(self, cases=(*cases, Case(OPEN, {})))

    def decide(self, data: ReportData) -> Claim:
        """The claim by the first case whose conditions are met."""
        facts, prose = self.reads(data), self.prose
        if facts is None:
            return Claim(self, NOT_MEASURED, "", prose.needs)
        if not all(is_known(facts.get(name)) for name in self.certain):
            return Claim(self, OPEN, prose.bare.format_map(facts), prose.uncertain)
        met = next(number for number, each in enumerate(self.cases) if each.holds(facts))
        texts = (prose.figures, prose.reasons[met][1], prose.power)
        return Claim(self, self.cases[met].verdict, *(text.format_map(facts) for text in texts))

    @property
    def prose(self) -> Prose:
        """What a person reads of it."""
        return prose_of(self.paper)[self.key]

    @property
    def name(self) -> str:
        """What it is called."""
        return self.prose.name


@dataclass(frozen=True, slots=True)
class Claim:
    """What became of one published claim: the numbers, the reason for the verdict, and what could have been seen.

    `figures` is a sentence with the numbers, their intervals and the tokens behind them; `power` one with the smallest
    contrast that 80 of 100 such runs would have found. Both are empty when nothing was measured.
    """

    published: Published
    verdict: Verdict
    figures: str
    why: str
    power: str = ""

    @property
    def name(self) -> str:
        """What the claim is called."""
        return self.published.name

    @property
    def reasons(self) -> str:
        """The numbers, the reason and the power, as one line of text."""
        return " ".join(part for part in (self.figures, self.why, self.power) if part)

    @property
    def line(self) -> str:
        """The claim as one line of text."""
        return f"{self.name}: {self.verdict}. {self.reasons}"


@dataclass(frozen=True, slots=True)
class Paper:
    """A founding paper: its claims in its order, and the Markdown file `key`.md with its title and its citation."""

    key: str
    claims: tuple[Published, ...]

    @property
    def title(self) -> str:
        """The title."""
        return _sections(self.key)[0][0].removeprefix("# ")

    @property
    def citation(self) -> str:
        """Where it was published."""
        return _sections(self.key)[0][1]


def row(
    key: str,
    reads: Reads | Mapping[str, Read],
    *,
    certain: tuple[str, ...] = (),
    number: str = "",
    words: Callable[[ReportData], Facts] | None = None,
) -> Published:
    """A row of the table; `reads` are the contrasts of the claim, with `words` beside them, or a function of a run."""
    facts = Contrasts(key, reads, words=words) if isinstance(reads, Mapping) else reads
    return Published(key, facts, certain, number)


def paper(key: str, *rows: Published) -> Paper:
    """A paper with its rows."""
    return Paper(key, tuple(replace(each, paper=key) for each in rows))


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of the claims of one paper in one run, in the paper's order."""

    paper: Paper
    claims: tuple[Claim, ...]

    @property
    def measured(self) -> tuple[Claim, ...]:
        """Those that the run has rows for."""
        return tuple(claim for claim in self.claims if claim.verdict != NOT_MEASURED)

    @property
    def count(self) -> int:
        """How many of them the run has rows for."""
        return len(self.measured)


@cache
def prose_of(paper: str) -> Mapping[str, Prose]:
    """The prose of every claim of a paper, by the key of the claim."""
    prose = {}
    for heading, *paragraphs in _sections(paper)[1:]:
        key, _, name = heading.partition(": ")
        prose[key] = Prose.of(name, paragraphs)
    return prose


@cache
def _sections(paper: str) -> tuple[list[str], ...]:
    """The sections of a paper's file, each a heading and paragraphs."""
    text = resources.files(__package__).joinpath(f"{paper}.md").read_text(encoding="utf-8")
    return tuple(section.split("\n\n") for section in text.strip().split("\n\n## "))


def _line(paragraph: str) -> str:
    return " ".join(paragraph.split())
