"""A published claim as a row, its prose and its cases from Markdown, and the function that decides it.

The prose is in `<paper>.md` under a heading `## key: name`: the finding, its source, the rule and its requirements, the
figures, and the cases in order. A case is a verdict, conditions on the facts, and the reason:

    - supported if gain above, learned above: It gains, and loses the gain where its weights are held at their start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Literal, get_args

from layerwise.page.claims.claim import BADGES, NOT_MEASURED, OPEN, Position, Verdict
from layerwise.page.claims.contrasts import Contrasts, Facts, Read, contrast_rows, is_known, states
from layerwise.page.data import ReportData
from layerwise.page.finding import Paper
from layerwise.page.text.wording import counted

Reads = Callable[[ReportData], Facts | None]
"""From the rows of a run to the facts that a rule reads; `None` where these were not measured."""


@dataclass(frozen=True, slots=True)
class FactCondition:
    """Where a fact must lie, as it is written in the prose.

    gain above, gain within/below    it lies there, and so does every fact of several
    rivals some within/below         one of several facts, or more, lies there
    ratio not above                  it does not lie there, or was not measured
    learned unmeasured               there is none
    reached, not reached             it is true, or false
    """

    fact: str
    how: Literal["all", "some", "not", "true", "false"]
    positions: frozenset[Position] = frozenset()

    @classmethod
    def parse(cls, text: str) -> FactCondition:
        match text.split():
            case ["not", fact]:
                return cls(fact, "false")
            case [fact]:
                return cls(fact, "true")
            case [fact, "unmeasured"]:
                return cls(fact, "all")
            case [fact, ("some" | "not") as how, where]:
                return cls(fact, how, _positions(where, text))
            case [fact, where]:
                return cls(fact, "all", _positions(where, text))
        raise ValueError(f"{text!r} is no condition; write a fact, `some` or `not` where it is meant, and a position")

    def holds(self, facts: Facts) -> bool:
        fact, wanted = facts.get(self.fact), self.positions
        at = states(fact)
        match self.how:
            case "true" | "false":
                return bool(fact) == (self.how == "true")
            case "some":
                return not at.isdisjoint(wanted)
            case "not":
                return at != wanted
        return bool(at) == bool(wanted) and at <= wanted


def _positions(where: str, text: str) -> frozenset[Position]:
    known: dict[str, Position] = {position: position for position in get_args(Position)}
    if unknown := set(where.split("/")) - set(known):
        raise ValueError(
            f"{text!r} names {', '.join(sorted(unknown))}; a fact lies {', '.join(known)} or is unmeasured"
        )
    return frozenset(known[each] for each in where.split("/"))


@dataclass(frozen=True, slots=True)
class Case:
    """A verdict, the conditions on facts that must all be met, and the reason that a person reads."""

    verdict: Verdict
    conditions: tuple[FactCondition, ...] = ()
    reason: str = ""

    @classmethod
    def parse(cls, text: str) -> Case:
        head, _, reason = text.partition(": ")
        verdict, _, conditions = head.partition(" if ")
        known = {str(each): each for each in BADGES}
        if verdict not in known:
            raise ValueError(f"{text!r} begins with no verdict; write one of {', '.join(known)}")
        return cls(known[verdict], tuple(map(FactCondition.parse, filter(None, conditions.split(", ")))), reason)

    def holds(self, facts: Facts) -> bool:
        return all(condition.holds(facts) for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class Prose:
    """Hold the text of a claim and the cases that decide it.

    `number` is the figure in the paper, `figures` a template with the numbers, `power` one with the contrast detectable
    with 80 % power, `bare` and `uncertain` the numbers and the reason if a required interval is missing. The first of
    `cases` that holds decides; the last always holds, and is inconclusive.
    """

    name: str
    statement: str
    citation: str
    rule: str
    needs: str
    number: str
    figures: str
    power: str
    bare: str
    uncertain: str
    cases: tuple[Case, ...]

    @classmethod
    def of(cls, name: str, paragraphs: list[str]) -> Prose:
        *lines, items = paragraphs
        statement, citation, *rest = map(_line, lines)
        named = {label: text.strip() for label, _, text in (line.partition(":") for line in rest)}
        cases = tuple(Case.parse(_line(item)) for item in f"\n{items}".split("\n- ")[1:])
        figures = named["Figures"]
        return cls(
            name,
            statement,
            citation,
            named["Rule"],
            named["Needs"],
            named.get("The paper", ""),
            figures,
            named.get("Power", ""),
            named.get("Figures without intervals", figures),
            named.get("Without intervals", ""),
            cases,
        )


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """A published claim, known by `key` in rows and prose; undecided if a fact of `certain` has no interval."""

    key: str
    reads: Reads
    certain: tuple[str, ...] = ()
    paper: str = ""

    def decide(self, data: ReportData) -> Claim:
        facts, prose, left_out = self.reads(data), self.prose, _left_out(data, self.key)
        if facts is None and left_out:
            return Claim(self, OPEN, left_out, "Too few windows are left to compare.")
        if facts is None:
            return Claim(self, NOT_MEASURED, "", prose.needs)
        if not all(is_known(facts.get(name)) for name in self.certain):
            return Claim(self, OPEN, prose.bare.format_map(facts), prose.uncertain)
        met = next(each for each in prose.cases if each.holds(facts))
        texts = (prose.figures, met.reason, prose.power)
        figures, why, power = (text.format_map(facts) for text in texts)
        return Claim(self, met.verdict, " ".join(filter(None, (figures, left_out))), why, power)

    @property
    def prose(self) -> Prose:
        return prose_of(self.paper)[self.key]

    @property
    def source(self) -> Paper:
        (title, citation, *_), *_ = _sections(self.paper)
        return Paper(title.removeprefix("# "), citation)

    @property
    def name(self) -> str:
        return self.prose.name


@dataclass(frozen=True, slots=True)
class Claim:
    """The verdict on one published claim and the reason for it.

    `figures` is a sentence with the numbers, `power` one with the detectable contrast; both are empty if not measured.
    """

    published: ClaimRule
    verdict: Verdict
    figures: str
    why: str
    power: str = ""

    @property
    def name(self) -> str:
        return self.published.name

    @property
    def reasons(self) -> str:
        return " ".join(part for part in (self.figures, self.why, self.power) if part)


@dataclass(frozen=True, slots=True)
class ClaimPaper:
    """A founding paper: its claims in its order, and the Markdown file `key`.md with its title and its citation."""

    key: str
    claims: tuple[ClaimRule, ...]

    @property
    def title(self) -> str:
        return _sections(self.key)[0][0].removeprefix("# ")

    @property
    def citation(self) -> str:
        return _sections(self.key)[0][1]


def row(
    key: str,
    reads: Reads | Mapping[str, Read],
    *,
    certain: tuple[str, ...] = (),
    words: Callable[[ReportData], Facts] | None = None,
) -> ClaimRule:
    """A row of the table; `reads` are the contrasts of the claim, with `words` beside them, or a function of a run."""
    return ClaimRule(key, Contrasts(key, reads, words=words) if isinstance(reads, Mapping) else reads, certain)


def _left_out(data: ReportData, claim: str) -> str:
    rows = contrast_rows(data, claim)
    left_out, compared = (int(rows[name].value) if name in rows else 0 for name in ("left_out", "windows"))
    if not left_out:
        return ""
    are = "is" if left_out == 1 else "are"
    return (
        f"{left_out} of {counted(left_out + compared, 'window')} {are} left out: a plan there has a greater loss than a"
        " unigram model."
    )


def paper(key: str, *rows: ClaimRule) -> ClaimPaper:
    return ClaimPaper(key, tuple(replace(each, paper=key) for each in rows))


@cache
def prose_of(paper: str) -> Mapping[str, Prose]:
    prose = {}
    for heading, *paragraphs in _sections(paper)[1:]:
        key, _, name = heading.partition(": ")
        prose[key] = Prose.of(name, paragraphs)
    return prose


@cache
def _sections(paper: str) -> tuple[list[str], ...]:
    text = resources.files(__package__).joinpath(f"{paper}.md").read_text(encoding="utf-8")
    return tuple(section.split("\n\n") for section in text.strip().split("\n\n## "))


def _line(paragraph: str) -> str:
    return " ".join(paragraph.split())
