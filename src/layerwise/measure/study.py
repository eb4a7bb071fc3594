"""A study as a value: everything that fixes the numbers of one model on one text, before either is loaded.

`Study` names the plans, the windows of the text, the benchmarks and the seed. It is checked when it is made, so that a
misspelt family or plan costs nothing; `layerwise.measure.conduct` carries it out. This module needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerwise.errors import MeasureError, PlanError, near_matches
from layerwise.plan import FAMILIES, Member, Plan, family
from layerwise.plan.member import GIVEN

DEFAULT_FAMILIES = ("painters", "leave_one_out", "swap_adjacent")

# Tokens that run together by default: enough to keep a CPU busy, little enough for a laptop's memory.
BATCH_TOKENS = 4096


SEEDS = 2**32
"""Seeds lie below this: what numpy draws by takes no larger one."""


def check_seed(seed: int) -> None:
    """Raise `MeasureError` for a seed that no generator takes."""
    if not 0 <= seed < SEEDS:
        raise MeasureError(f"a seed is a whole number from 0 to {SEEDS - 1}, and {seed} was asked for")


def check_counts(**counts: int | None) -> None:
    """Raise `MeasureError` for a count below 1."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise MeasureError(f"{name} is {count}; write a number of 1 or more")


@dataclass(frozen=True, slots=True)
class Study:
    """What is measured, and how: the plans, the text's windows, the benchmarks, the seed.

    `families` are named in `layerwise.plan.families`; `plans` are plan texts of the user's own. `tokens` bounds the
    scored tokens; `length` is the longest window. `tasks` are lm-eval benchmarks, run on every plan, on `task_limit`
    examples each where that is set, with definitions from `task_folder` where that is given.

    Raises `PlanError` for a family that is unknown and a plan that cannot be read, `MeasureError` for a seed or a count
    that cannot be.
    """

    families: tuple[str, ...] = DEFAULT_FAMILIES
    plans: tuple[str, ...] = ()
    length: int | None = None
    tokens: int | None = None
    batch_tokens: int = BATCH_TOKENS
    seed: int = 0
    tasks: tuple[str, ...] = ()
    task_folder: Path | None = None
    task_limit: int | None = None
    with_similarity: bool = True

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_counts(length=self.length, tokens=self.tokens, batch_tokens=self.batch_tokens, task_limit=self.task_limit)
        for name in self.families:
            if name not in FAMILIES:
                raise PlanError(f"unknown family {name!r}; {near_matches(name, FAMILIES)}")
        for text in self.plans:
            Plan.parse(text)

    def members(self, depth: int) -> tuple[Member, ...]:
        """The plans of the study for a model of `depth` layers, each with the family it is there for.

        Raises `PlanError` for a plan that runs layers the model has not, and for a family that needs more of them.

        >>> [str(member.plan) for member in Study(families=("swap_adjacent",), plans=("0*2 1 2",)).members(3)]
        ['0-2', '1 0 2', '0 2 1', '0*2 1 2']
        """
        found = [Member(Plan.identity(depth), "identity", "identity", 0)]
        for name in self.families:
            found.extend(_at_depth(name, depth))
        for text in self.plans:
            plan = Plan.parse(text)
            plan.check(depth)
            found.append(Member(plan, GIVEN, GIVEN, len(plan.steps())))
        return tuple(found)


def _at_depth(name: str, depth: int) -> tuple[Member, ...]:
    try:
        return family(name, depth)
    except PlanError as error:
        possible = [other for other in FAMILIES if _exists(other, depth)]
        raise PlanError(
            f"the family {name!r} does not exist for a model of {depth} layer{'s' * (depth != 1)} ({error}); name "
            f"others with --families, or only plans of your own with --plan. Known here: {', '.join(possible)}"
        ) from error


def _exists(name: str, depth: int) -> bool:
    try:
        return bool(family(name, depth))
    except PlanError:
        return False
