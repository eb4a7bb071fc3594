"""The configuration of a sweep: which plans are measured on which model and text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from layerwise.errors import PlanError, near_matches
from layerwise.experiments.experiment import Experiment, Inputs, Reads
from layerwise.experiments.option import option
from layerwise.experiments.options.model import ModelOptions
from layerwise.experiments.options.text import TextOptions
from layerwise.experiments.reporter import Reporter
from layerwise.plan import FAMILIES, Member, Plan, family
from layerwise.plan.member import GIVEN

if TYPE_CHECKING:
    from layerwise.experiments.sweep.run import PreparedSweep

DEFAULT_FAMILIES = ("painters", "leave_one_out", "swap_adjacent")


@dataclass(frozen=True, kw_only=True)
class Sweep(ModelOptions, TextOptions, Experiment):
    """Measure many plans on one model and text, with intervals, and write a report.

    If interrupted, run the same command again to resume.
    """

    VERB: ClassVar = "sweep"
    EXAMPLES: ClassVar = (
        "demo",
        "HuggingFaceTB/SmolLM2-135M --text book.txt --families painters",
        './my-model --text texts/ --plan "0-13 18-29" --plan "0-29 0-29"',
        "./my-model --text texts/ --families painters --tasks arc_challenge,hellaswag,gsm8k,winogrande,lambada_openai",
    )
    READS: ClassVar = (
        Reads(
            ("task_folder", "task_limit", "num_fewshot"),
            lambda config: bool(config.tasks),
            "the benchmarks of --tasks read it, and none was named",
        ),
    )

    families: tuple[str, ...] = option(
        DEFAULT_FAMILIES, f"Families of plans, from: {', '.join(FAMILIES)}.", metavar="NAMES", empty=True
    )
    plan: tuple[str, ...] = option(
        (), "A plan of your own; repeat for more.", metavar="PLAN", repeated=True, empty=True
    )
    tasks: tuple[str, ...] = option((), "Benchmarks of lm-eval; needs layerwise[eval].", metavar="NAMES")
    task_folder: Path | None = option(None, "Folder of lm-eval task files.", metavar="PATH")
    task_limit: int | None = option(None, "Examples of each benchmark.", metavar="N", least=1)
    num_fewshot: int | None = option(
        None, "Examples before each question; by default as each benchmark says.", metavar="N", least=0
    )
    similarity: bool = option(True, "Compare the hidden states of the layers.")

    def check(self) -> None:
        """Raise `PlanError` for a family that is unknown and a plan that cannot be read."""
        for name in self.families:
            if name not in FAMILIES:
                raise PlanError(f"unknown family {name!r}; {near_matches(name, FAMILIES)}")
        for text in self.plan:
            Plan.parse(text)

    def members(self, depth: int) -> tuple[Member, ...]:
        """The plans for a model of `depth` layers, the trained order first, each with the family it belongs to.

        Raises `PlanError` for a plan that runs layers the model does not have, and for a family that needs more layers.

        >>> config = Sweep(model="demo", families=("swap_adjacent",), plan=("0*2 1 2",))
        >>> [str(member.plan) for member in config.members(3)]
        ['0-2', '1 0 2', '0 2 1', '0*2 1 2']
        """
        members = [Member(Plan.identity(depth), "identity", "identity", 0)]
        for name in self.families:
            members.extend(_at_depth(name, depth))
        for text in self.plan:
            plan = Plan.parse(text)
            plan.check(depth)
            members.append(Member(plan, GIVEN, GIVEN, len(plan.steps())))
        return tuple(members)

    def prepare(self, reporter: Reporter, inputs: Inputs) -> PreparedSweep:
        """Open the model, tokenize the text, lower the plans and count what they cost."""
        from layerwise.experiments.sweep.run import PreparedSweep

        corpus = inputs.corpus or self.corpus(self.model)
        return PreparedSweep(self, inputs.stack or self.open_model(reporter), corpus)


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
