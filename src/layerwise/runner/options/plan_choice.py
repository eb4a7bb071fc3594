"""The plans that a call names: families, windows, and plans of the caller's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerwise.errors import PlanError, near_matches
from layerwise.plan import FAMILIES, Member, Plan, families, family
from layerwise.plan.families import PAINTERS_LOOPS, TWICE
from layerwise.plan.painters import GIVEN
from layerwise.runner.options.plans import given_plan, whole_numbers, whole_range
from layerwise.runner.verb import spell


@dataclass(frozen=True)
class PlanChoice:
    """Checked families, plans and windows; `loops` and `times` are numbers as text, None and "2" by default."""

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
        """Parse what was given.

        Raises:
            PlanError: For an unknown family and an invalid plan.
            OptionError: For a range or a list of numbers that cannot be read.
        """
        for name in families:
            if name not in FAMILIES:
                raise PlanError(f"unknown family {name!r}; {near_matches(name, FAMILIES)}")
        windows = tuple(whole_range(spell("window"), text) for text in window)
        choice = cls(tuple(families), tuple(given_plan(str(plan)) for plan in plans), windows, loops, times)
        choice.count_loops()
        choice.count_repeats()
        return choice

    def count_loops(self) -> tuple[int, ...] | None:
        """Return the loop counts, or None if each family has its own."""
        return None if self.loops is None else whole_numbers(spell("loops"), self.loops)

    def count_repeats(self) -> tuple[int, ...]:
        """Return how often `repeat_blocks` runs a block."""
        return whole_numbers(spell("times"), self.times, least=TWICE)

    def list_members(self, depth: int) -> tuple[Member, ...]:
        """Return the plans for a model of `depth` layers, the identity plan first, each with its family.

        Raises:
            PlanError: For a plan that runs layers the model does not have, and for a family that needs more layers.

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
        """Return what decides which plans are measured, for the manifest; defaults are not named.

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
        f"the family {name!r} does not exist for a model of {depth} layer{'s' * (depth != 1)} ({error}). Choose other "
        f"{spell('families')}, or only {spell('plans')} of your own. Known here: {', '.join(possible)}"
    )


def _has_plans(name: str, depth: int) -> bool:
    try:
        return bool(family(name, depth))
    except PlanError:
        return False
