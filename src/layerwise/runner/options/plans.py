"""Options that say which plans a model is measured under: families, windows, plans of one's own, those of a search."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerwise.bounded import named
from layerwise.errors import OptionError, PlanError, near_matches
from layerwise.plan import FAMILIES, Member, Plan, families, family
from layerwise.plan.families import PAINTERS_LOOPS, TWICE
from layerwise.plan.painters import GIVEN
from layerwise.results import Run
from layerwise.results.run import is_run
from layerwise.results.vocabulary import CHOSEN, SEARCH
from layerwise.runner.option import option

MOST = 10_000
"""The largest number of a range, `1-28`, `2,3` or `1-4,8`: one digit too many would otherwise fill the memory."""

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def families_option(default: tuple[str, ...] = ()) -> Any:
    return option(default, f"Plan families: {', '.join(FAMILIES)}.", metavar="NAMES", empty=True)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Which plans a model runs beside the trained order."""

    families: tuple[str, ...] = families_option()
    plan: tuple[str, ...] = option((), metavar="PLAN", repeated=True, empty=True)
    window: tuple[str, ...] = option(
        (),
        "Layers for every strategy of the painters, such as 4-8; repeat for more.",
        metavar="A-B",
        repeated=True,
        rare=True,
    )
    loops: str | None = option(
        None,
        "Loop counts of looped and --window, such as 1-28 or 1,2,4; by default up to the depth, and 3.",
        metavar="NUMBERS",
        rare=True,
        needs=("families=looped", "window"),
    )
    times: str = option(
        str(TWICE),
        "How often repeat_blocks runs a block, such as 2,3.",
        metavar="NUMBERS",
        rare=True,
        needs="families=repeat_blocks",
    )

    def check_plans(self) -> None:
        for name in self.families:
            if name not in FAMILIES:
                raise PlanError(f"unknown family {name!r}; {near_matches(name, FAMILIES)}")
        for text in self.plan:
            given_plan(text)
        self.windows()
        self.loop_counts()
        self.repeat_counts()

    def windows(self) -> tuple[tuple[int, int], ...]:
        """The first and the last layer of every window, as given.

        >>> PlanOptions(window=("4-8", "2")).windows()
        ((4, 8), (2, 2))
        """
        return tuple(whole_range("--window", text) for text in self.window)

    def loop_counts(self) -> tuple[int, ...] | None:
        """The loop counts, or `None` where each family has its own."""
        return None if self.loops is None else whole_numbers("--loops", self.loops)

    def repeat_counts(self) -> tuple[int, ...]:
        """How often a block is run by `repeat_blocks`: twice or more.

        >>> PlanOptions(families=("repeat_blocks",), times="2,3").repeat_counts()
        (2, 3)
        """
        return whole_numbers("--times", self.times, least=TWICE)

    def members(self, depth: int) -> tuple[Member, ...]:
        """The plans for a model of `depth` layers, the trained order first, each with the family it belongs to.

        Raises `PlanError` for a plan that runs layers the model does not have, and for a family that needs more layers.

        >>> config = PlanOptions(families=("swap_adjacent",), plan=("0*2 1 2",))
        >>> [str(member.plan) for member in config.members(3)]
        ['0-2', '1 0 2', '0 2 1', '0*2 1 2']
        """
        members = [Member(Plan.identity(depth), "identity", "identity", 0)]
        for name in self.families:
            members.extend(self._of_family(name, depth))
        for first, last in self.windows():
            members.extend(families.window(depth, first, last, loops=self.loop_counts() or (PAINTERS_LOOPS,)))
        for text in self.plan:
            plan = Plan.parse(text)
            plan.check(depth)
            members.append(Member(plan, GIVEN, GIVEN, len(plan.steps())))
        return tuple(members)

    def plan_names(self) -> tuple[str, ...]:
        """What decides which plans are measured, for the manifest; an option at its default is not named.

        >>> PlanOptions(families=("looped",), loops="1-4", window=("2-3",), plan=("0-3",)).plan_names()
        ('looped', 'loops:1-4', 'window:2-3', 'plan:0-3')
        """
        numbers = [f"loops:{self.loops}"] if self.loops is not None else []
        numbers += [f"times:{self.times}"] if self.repeat_counts() != (TWICE,) else []
        windows = [f"window:{first}-{last}" for first, last in self.windows()]
        return (*self.families, *numbers, *windows, *(f"plan:{text}" for text in self.plan))

    def _of_family(self, name: str, depth: int) -> tuple[Member, ...]:
        try:
            return family(name, depth, loops=self.loop_counts(), times=self.repeat_counts())
        except PlanError as error:
            raise _refusal(name, depth, error) from error


def _exists(name: str, depth: int) -> bool:
    try:
        return bool(family(name, depth))
    except PlanError:
        return False


def _refusal(name: str, depth: int, error: PlanError) -> PlanError:
    possible = [other for other in FAMILIES if _exists(other, depth)]
    return PlanError(
        f"the family {name!r} does not exist for a model of {depth} layer{'s' * (depth != 1)} ({error}); name "
        f"others with --families, or only plans of your own with --plan. Known here: {', '.join(possible)}"
    )


def whole_numbers(flag: str, text: str, least: int = 1) -> tuple[int, ...]:
    """The numbers that `text` names, ascending and without repetition; `flag` is named in refusals.

    Raises `OptionError` for a text of another form, and for a number below `least` or above `MOST`.

    >>> whole_numbers("--loops", "1-4,8"), whole_numbers("--times", "3,2")
    ((1, 2, 3, 4, 8), (2, 3))
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, last = whole_range(flag, part, least)
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def whole_range(flag: str, text: str, least: int = 0) -> tuple[int, int]:
    """The first and the last number of one range, or a single number twice; raises as `whole_numbers` does.

    >>> whole_range("--window", "4-8"), whole_range("--window", "5")
    ((4, 8), (5, 5))
    """
    match = _PART.fullmatch(text.strip())
    if match is None:
        raise OptionError(f"{flag} takes whole numbers such as 4 or 1-28; found {named(repr(text))}")
    first = int(match[1])
    last = int(match[2] or first)
    if not least <= first <= last <= MOST:
        raise OptionError(
            f"{flag} takes ascending numbers from {least} to {MOST:,}, and {named(repr(text.strip()))} was given; "
            f"write a range such as {least}-{least + 4}"
        )
    return first, last


def given_plan(text: str) -> Plan:
    """The plan whose text is `text`. Raises `PlanError`, which tells the name of a run from a plan with a mistake."""
    try:
        return Plan.parse(text)
    except PlanError as error:
        if error.position != 0 or not text[:1].isalpha() or " " in text.strip():
            raise
        what = "a run, and no plan" if is_run(Path(text)) else "no plan, and there is no run of that name here"
        raise PlanError(
            f'{named(text)} is {what}; a plan is written as the numbers of layers, as in "0-13 18-31", and only '
            "`layerwise heal` and `layerwise save` take a run: of `layerwise search`, for the plan that it chose"
        ) from error


def chosen_plan(text: str) -> Plan:
    """Return the plan of `text`, or the plan that the `layerwise search` run in that folder chose.

    Raises `PlanError` for an invalid plan, and for a run that has not chosen one.

    >>> chosen_plan("0-3 6-11")
    Plan('0-3 6-11')
    """
    folder = Path(text).expanduser()
    if not is_run(folder):
        return given_plan(text)
    with Run.open(folder) as run:
        chosen = run.store.scores(SEARCH, metric=CHOSEN)
    if not chosen:
        raise PlanError(
            f"the run {folder} has chosen no plan: it is none of `layerwise search`, or was stopped before its end; "
            "run that search again to resume it, or write the plan itself"
        )
    return Plan.parse(str(chosen[0].plan))
