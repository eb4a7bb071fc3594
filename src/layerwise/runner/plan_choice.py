"""Parse and check the options that choose plans: families, windows and single plans."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from layerwise.bounded import named
from layerwise.errors import OptionError, PlanError, near_matches
from layerwise.plan import FAMILIES, Member, Plan, families, family
from layerwise.plan.families import PAINTERS_LOOPS, TWICE
from layerwise.plan.painters import GIVEN
from layerwise.results import Run
from layerwise.results.run import is_run
from layerwise.results.vocabulary import CHOSEN, SEARCH
from layerwise.runner.verb import spell

MAX_NUMBER = 10_000
"""Largest number in a range, so that a typo does not fill the memory."""

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


@dataclass(frozen=True)
class PlanChoice:
    """The checked families, plans and windows of a call. `loops` and `times` are lists of numbers as text."""

    families: tuple[str, ...] = ()
    plans: tuple[Plan, ...] = ()
    windows: tuple[tuple[int, int], ...] = ()
    loops: str | None = None
    times: str = str(TWICE)

    @classmethod
    def check(
        cls,
        families: Sequence[str],
        plans: Sequence[str | Plan],
        window: Sequence[str],
        loops: str | None,
        times: str,
    ) -> PlanChoice:
        for name in families:
            if name not in FAMILIES:
                raise PlanError(f"Unknown family {name!r}; {near_matches(name, FAMILIES)}")
        if repeated := [name for name in dict.fromkeys(families) if list(families).count(name) > 1]:
            raise OptionError(
                f"{spell('families')} must name each family once, got {repeated[0]} several times. "
                f"Write {','.join(dict.fromkeys(families))}."
            )
        windows = tuple(parse_range(spell("window"), text) for text in window)
        choice = cls(tuple(families), tuple(parse_plan(str(plan)) for plan in plans), windows, loops, times)
        choice.count_loops()
        choice.count_repeats()
        return choice

    def count_loops(self) -> tuple[int, ...] | None:
        return None if self.loops is None else parse_numbers(spell("loops"), self.loops)

    def count_repeats(self) -> tuple[int, ...]:
        return parse_numbers(spell("times"), self.times, least=TWICE)

    def list_members(self, depth: int) -> tuple[Member, ...]:
        """Return the plans for a model of `depth` layers, starting with the identity plan.

        Raises:
            PlanError: If the model has too few layers for a plan or a family.

        Example:
            >>> choice = PlanChoice(("swap_adjacent",), (Plan.parse("0*2 1 2"),))
            >>> [str(member.plan) for member in choice.list_members(3)]
            ['0-2', '1 0 2', '0 2 1', '0*2 1 2']
        """
        members = [Member(Plan.identity(depth), "identity", "identity", 0)]
        for name in self.families:
            try:
                members.extend(family(name, depth, loops=self.count_loops(), times=self.count_repeats()))
            except PlanError as error:
                raise _explain_refusal(name, depth, error) from error
        for first, last in self.windows:
            members.extend(families.window(depth, first, last, loops=self.count_loops() or (PAINTERS_LOOPS,)))
        for plan in self.plans:
            plan.check(depth)
            members.append(Member(plan, GIVEN, GIVEN, len(plan.steps())))
        return tuple(members)

    def describe(self) -> tuple[str, ...]:
        """Return the texts that identify the choice in a manifest. Defaults are omitted.

        Example:
            >>> PlanChoice(("looped",), (Plan.parse("0-3"),), ((2, 3),), loops="1-4").describe()
            ('looped', 'loops:1-4', 'window:2-3', 'plan:0-3')
        """
        numbers = [f"loops:{self.loops}"] if self.loops is not None else []
        numbers += [f"times:{self.times}"] if self.count_repeats() != (TWICE,) else []
        windows = [f"window:{first}-{last}" for first, last in self.windows]
        return (*self.families, *numbers, *windows, *(f"plan:{plan}" for plan in self.plans))


def _explain_refusal(name: str, depth: int, error: PlanError) -> PlanError:
    possible = [other for other in FAMILIES if _has_plans(other, depth)]
    return PlanError(
        f"The family {name!r} does not exist for a model of {depth} layer{'s' * (depth != 1)} ({error}). Choose other "
        f"{spell('families')}, or pass {spell('plans')}. Possible families: {', '.join(possible)}"
    )


def _has_plans(name: str, depth: int) -> bool:
    try:
        return bool(family(name, depth))
    except PlanError:
        return False


def parse_numbers(flag: str, text: str, least: int = 1) -> tuple[int, ...]:
    """Parse a list of numbers and ranges. Error messages call the option `flag`.

    >>> parse_numbers("--loops", "1-4,8"), parse_numbers("--times", "3,2")
    ((1, 2, 3, 4, 8), (2, 3))
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, last = parse_range(flag, part, least, several=True)
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def parse_range(flag: str, text: str, least: int = 0, *, several: bool = False) -> tuple[int, int]:
    """Parse a range or a single number. If `several`, error messages ask for a list of ranges.

    >>> parse_range("--window", "4-8"), parse_range("--window", "5")
    ((4, 8), (5, 5))
    """
    match = _PART.fullmatch(text.strip())
    if match is None:
        allowed = "integers or ranges such as 1-28" if several else "a range such as 4-8 or an integer"
        raise OptionError(f"{flag} must be {allowed}, got {named(repr(text))}.")
    first = int(match[1])
    last = int(match[2] or first)
    if least <= last < first <= MAX_NUMBER:
        raise OptionError(f"{flag} must be ascending, got the descending range {match[0]!r}. Write {last}-{first}.")
    if not least <= first <= last <= MAX_NUMBER:
        raise OptionError(f"{flag} must be between {least} and {MAX_NUMBER:,}, got {named(repr(text.strip()))}.")
    return first, last


def parse_plan(text: str) -> Plan:
    """Parse a plan. The error message tells whether the text is a path or an invalid plan."""
    try:
        return Plan.parse(text)
    except PlanError as error:
        if error.position != 0 or not text[:1].isalpha() or " " in text.strip():
            raise
        is_directory = is_run(Path(text))
        what = "a run directory, not a plan" if is_directory else "neither a plan nor a run directory"
        hint = " Only `layerwise heal` and `layerwise save` accept the run of a search." if is_directory else ""
        raise PlanError(
            f'{named(text)} is {what}. Write a plan as layer numbers, such as "0-13 18-31".{hint}'
        ) from error


def resolve_plan(text: str) -> Plan:
    """Parse a plan. If the text is the run directory of a search, return the plan that the search selected.

    >>> resolve_plan("0-3 6-11")
    Plan('0-3 6-11')
    """
    folder = Path(text).expanduser()
    if not is_run(folder):
        return parse_plan(text)
    with Run.open(folder) as run:
        rows = run.store.scores(SEARCH, metric=CHOSEN)
    if not rows:
        raise PlanError(
            f"{folder} does not contain a selected plan: it is not a run of `layerwise search`, or it was interrupted. "
            "Resume the search or pass a plan."
        )
    return Plan.parse(str(rows[0].plan))
