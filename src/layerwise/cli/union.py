"""A union of models: those that lend each other layers, opened, written out as one, or judged over many draws."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from layerwise.cli.course import check_is_course, manifest_of, refuse_too_few, tell
from layerwise.cli.lending import lend
from layerwise.cli.materials import DIGITS, Material
from layerwise.cli.model import open_model
from layerwise.cli.screen import PartBar, output
from layerwise.cli.sitting import begin, speaker, stopped_in_peace
from layerwise.cli.writing import refuse_added, write_out
from layerwise.data.splits import Splits
from layerwise.errors import ModelError, RunError, near_matches
from layerwise.measure.provenance import folder_of
from layerwise.merge.lenders import Lender, by_arm, check_one_base, lenders
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.results.rows import Score
from layerwise.results.run import MANIFEST
from layerwise.stack import Stack, weight_hash
from layerwise.train.trained import open_trained


@dataclass(frozen=True, slots=True)
class Union:
    """The lenders of each arm by their names in plans, the `run` that all are from, if any, and how to open them."""

    arms: Mapping[str, Mapping[str, Lender]]
    run: Path | None
    device: str
    dtype: str
    quiet: bool

    @classmethod
    def of(cls, places: Sequence[str], arm: str | None, *, device: str, dtype: str, quiet: bool) -> Union:
        """The models at `places`, of one `arm` or of all; each arm's models are of one base.

        Raises `ModelError` for an arm that is not there, and for models of different base.
        """
        arms = by_arm(lenders(places))
        if arm is not None and arm not in arms:
            raise ModelError(f"no model was trained as {arm!r}; {near_matches(arm, arms)}")
        chosen = {name: found for name, found in arms.items() if arm in (None, name)}
        say = speaker(quiet)
        for name, found in chosen.items():
            notes = check_one_base(found)
            say(f"{name}:")
            for letter, lender in found.items():
                say(f"  {letter}  {lender.place}")
            for said in notes:
                say(f"note: {said}")
        only = Path(places[0]).expanduser()
        return cls(chosen, only if len(places) == 1 and (only / MANIFEST).is_file() else None, device, dtype, quiet)

    def write(self, plan: Plan, folder: Path, *, fresh: bool) -> None:
        """Write the model of `plan` to `folder`, and say that it was proved.

        Raises `ModelError` when there are several arms, whose models have the same names.
        """
        if len(self.arms) > 1:
            raise ModelError(
                f"models of {len(self.arms)} arms were given; name one: --arm {' or --arm '.join(self.arms)}"
            )
        (found,) = self.arms.values()
        refuse_added(list(found.values()))
        stacks = self._open(found)
        # A plan without names is about one model, and its errors should not speak of several.
        stack = next(iter(stacks.values())) if len(stacks) == 1 and not plan.sources() else Stack.with_sources(stacks)
        write_out(stack, plan, folder, fresh=fresh)

    def judge(self, material: Material, folder: Path | None, *, draws: int, fresh: bool) -> None:
        """Judge members, merged models and ensembles of every arm with two models or more, into a run.

        It is the run of the trainings where all models are from one, else one of its own.
        """
        several = {arm: found for arm, found in self.arms.items() if len(found) > 1}
        if not several:
            raise ModelError(
                f"merging takes two models or more that were trained alike; found 1 of {', 1 of '.join(self.arms)}"
            )
        first = next(iter(next(iter(several.values())).values()))
        shell = self._stack(first)
        splits, manifest = self._examples(shell, first, material, several)
        say = speaker(self.quiet)
        place = folder or self.run or folder_of(manifest)
        with (
            begin(place, manifest, fresh and place != self.run) as run,
            stopped_in_peace(run),
            PartBar(self.quiet) as bar,
        ):
            scores, notes = lend(run, self.arms, splits, self._stack, bar, draws=draws, seed=material.seed)
            for said in notes:
                say(f"note: {said}")
            output.print(_table(scores, several))
            tell(run)

    def _examples(
        self, shell: Stack, first: Lender, material: Material, several: Mapping[str, Mapping[str, Lender]]
    ) -> tuple[Splits, Manifest]:
        """The examples, and the manifest of the run that the numbers belong to."""
        recorded = self._recorded()
        if recorded is not None:
            shell.source = replace(shell.source, name=recorded.model)
        known = first.pedigree.data_name if first.pedigree is not None else None
        if material.images is None and material.text is None and known == DIGITS:
            material = replace(material, images=DIGITS)
        splits = material.splits(shell, first.place, quiet=self.quiet)
        self._refuse_other_data(splits, several)
        refuse_too_few(splits)
        if recorded is not None:
            return splits, recorded
        every = [lender for found in several.values() for lender in found.values()]
        weights = [weight_hash(self._stack(lender).model) for lender in every]
        combined = hashlib.sha256("".join(weights).encode()).hexdigest()
        return splits, replace(manifest_of(shell, combined, splits), seed=material.seed)

    def _recorded(self) -> Manifest | None:
        if self.run is None:
            return None
        with Run.open(self.run) as run:
            check_is_course(run)
            return run.manifest

    def _refuse_other_data(self, splits: Splits, several: Mapping[str, Mapping[str, Lender]]) -> None:
        for found in several.values():
            for name, lender in found.items():
                if lender.pedigree is not None and lender.pedigree.data != splits.digest:
                    raise RunError(
                        f"{name} ({lender.place}) was trained on {lender.pedigree.data_name} with other splits than "
                        f"these ({splits.name}), so it may have learned from their test examples. Give the --images "
                        "or --text (--validation, --test), --limit and --seed of its training"
                    )

    def _open(self, found: Mapping[str, Lender]) -> dict[str, Stack]:
        return {name: self._stack(lender) for name, lender in found.items()}

    def _stack(self, lender: Lender) -> Stack:
        if lender.added:
            return open_trained(Path(lender.place), device=self.device, dtype=self.dtype).stack
        return open_model(lender.place, None, None, self.device, self.dtype, None, False)


def _table(scores: Sequence[Score], arms: Mapping[str, Mapping[str, Lender]]) -> Table:
    """Accuracy, mean and standard deviation: of the models themselves, of those merged from them, of the ensemble."""
    found = {(score.subject, score.task, score.metric): score.value for score in scores}

    def cell(arm: str, task: str) -> str:
        value, spread = (found.get((arm, task, metric)) for metric in ("accuracy", "accuracy@spread"))
        if value is None:
            return "–"
        return f"{value:.1%}" if spread is None else f"{value:.1%} ± {spread:.1%}"

    table = Table("accuracy", "order", "members", "best member", "merged", "ensemble", box=None, padding=(0, 2, 0, 0))
    for arm in arms:
        for order, merged in (("sequential", "own-depth"), ("arbitrary", "arbitrary")):
            tasks = (f"members {order}", f"best member {order}", f"merged {merged}", f"ensemble {order}")
            table.add_row(Text(arm), order, *(cell(arm, task) for task in tasks))
    return table
