"""Learned wirings of trained models: drawn, their edges ranked and cut, what is left judged, and written out.

A model keeps its layer weights in a wiring that was attached to it (`layerwise train wiring-identity`) or in its own
architecture (ELC-BERT); both are asked alike. Edges are chosen on one set of examples and judged on another.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from layerwise.cli.alpha import alpha_map
from layerwise.cli.course import candidates_of
from layerwise.cli.materials import Material
from layerwise.cli.screen import PartBar, output, write
from layerwise.cli.sitting import begin, speaker, stopped_in_peace
from layerwise.cli.subject import FAMILY, HOW, Subject, examples_of, has_wiring, open_subject
from layerwise.errors import ModelError, RunError
from layerwise.measure.edges import (
    ALPHA,
    MEASURE,
    Ranked,
    alpha_rows,
    prune,
    pruned_rows,
    rank,
    ranking_rows,
    wired_as,
)
from layerwise.measure.provenance import folder_of
from layerwise.plan import Edges
from layerwise.results import Manifest, Run
from layerwise.results.rows import Score
from layerwise.results.run import MANIFEST

FILE = "wiring.json"
"""The sparse wiring beside the weights of a model that was pruned to it."""

TOLD = 8
"""Edges that are printed, of those with the largest effect."""


@dataclass(frozen=True, slots=True)
class Cutting:
    """How edges are chosen, on which material, and where the sparse model goes."""

    material: Material
    keep: float | None
    tolerance: float | None
    rounds: int
    save: Path | None
    _: KW_ONLY
    device: str
    dtype: str
    fresh: bool
    quiet: bool

    def of_run(self, folder: Path) -> None:
        """Every finished model of a run that has a wiring, into that run."""
        with Run.open(folder) as recorded:
            manifest = recorded.manifest
        candidates = [each for each in candidates_of(folder) if has_wiring(each.folder)]
        if not candidates:
            raise RunError(f"{folder} holds no finished model with learned layer weights; {HOW}")
        if self.save is not None and len(candidates) > 1:
            raise RunError(
                f"{folder} holds {len(candidates)} models with learned layer weights, and one is saved: give its "
                f"folder, such as {candidates[0].folder}"
            )
        rows: list[Score] = []
        with Run.resume_or_create(folder, manifest) as run, stopped_in_peace(run):
            for each in candidates:
                subject = self._opened(each.folder, each.label)
                subject.stack.source = replace(subject.stack.source, name=manifest.model)
                rows += self._asked(subject, task="all" if len(candidates) == 1 else each.label)[0]
            _store(run, rows)
        write(output, f"rows: {folder}")

    def of_model(self, model: str, folder: Path | None) -> None:
        """One model, into a run of its own."""
        place = Path(model).expanduser()
        subject = self._opened(place, "all")
        rows, manifest = self._asked(subject, task="all")
        manifest = replace(manifest, families=(FAMILY,), seed=self.material.seed)
        folder = folder or folder_of(manifest)
        with begin(folder, manifest, self.fresh) as run:
            _store(run, rows)
        write(output, f"rows: {folder}")

    def _opened(self, folder: Path, label: str) -> Subject:
        return open_subject(folder, label, device=self.device, dtype=self.dtype)

    def _asked(self, subject: Subject, task: str) -> tuple[list[Score], Manifest]:
        """Draw, rank, prune and save one model; its rows, and what they are measured on."""
        choosing, judging, manifest = examples_of(subject, self.material, quiet=self.quiet)
        wired, seed = subject.wired, self.material.seed
        wiring = wired.edges()
        say = speaker(self.quiet)
        write(output, f"{subject.folder}: {len(wiring)} edges, {wiring.live_states()} live states")
        output.print(alpha_map(wiring))
        with PartBar(self.quiet) as bar:
            ranked = rank(
                wired, choosing, seed=seed, tell=lambda done, total: bar.update("cutting each edge", done / total)
            )
            rows = ranking_rows(ranked, choosing(), task=task, seed=seed, depth=wiring.depth)
            output.print(_table(ranked, wiring.depth))
            write(output, _agreement(rows))
            if self.keep is not None or self.tolerance is not None:
                say("choosing what to cut")
                pruned = prune(
                    wired, choosing, keep=self.keep, tolerance=self.tolerance, rounds=self.rounds, ranked=ranked,
                    seed=seed,
                )  # fmt: skip
                rows += pruned_rows(
                    wired, pruned, ranked, judging, task=task, seed=seed,
                    tell=lambda done, total: bar.update("cutting as many otherwise", done / total),
                )  # fmt: skip
                output.print(alpha_map(pruned))
                write(output, _verdict(rows))
                if self.save is not None:
                    self._write(subject, pruned)
        return [*rows, *alpha_rows(subject.label, wiring)], manifest

    # -- what is written ------------------------------------------------------------------------------------------

    def _write(self, subject: Subject, pruned: Edges) -> None:
        assert self.save is not None, "whoever writes was told where"
        if self.save.suffix == ".json":
            self.save.write_text(pruned.to_json())
            write(output, f"{self.save}: {len(pruned)} edges")
            return
        if self.save.exists() and not self.fresh:
            raise ModelError(f"{self.save} is there already; choose another folder, or replace it with --fresh")
        model: Any = subject.stack.model
        shutil.copytree(
            subject.folder, self.save, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors*", "survey-*")
        )
        with wired_as(subject.wired, pruned):
            model.save_pretrained(self.save)
        (self.save / FILE).write_text(pruned.to_json())
        again = self._opened(self.save, subject.label).wired.edges()
        if set(again) != set(pruned):
            raise ModelError(f"{self.save} does not hold the wiring that was written to it; save it elsewhere")
        write(
            output, f"{self.save}: {len(pruned)} edges, {pruned.live_states()} live states; opened again and compared"
        )


def is_run(place: str) -> bool:
    """Whether a run folder lies at `place`."""
    return (Path(place).expanduser() / MANIFEST).is_file()


def _store(run: Run, rows: Sequence[Score]) -> None:
    for measure in (MEASURE, ALPHA):
        run.store.replace_scores(measure, [row for row in rows if row.measure == measure])


def _table(ranked: Ranked, depth: int) -> Table:
    table = Table("edge", "weight", "effect (nats)", "95 %", "p", box=None, padding=(0, 2, 0, 0))
    for place in ranked.effect.value.argsort()[::-1][:TOLD]:
        low, high = ranked.effect.low[place], ranked.effect.high[place]
        table.add_row(
            ranked.edges[place].name(depth), f"{ranked.weights[place]:.3f}", f"{ranked.effect.value[place]:+.4f}",
            f"{low:+.4f} to {high:+.4f}", f"{ranked.p_adjusted[place]:.2g}",
        )  # fmt: skip
    return table


def _agreement(rows: Sequence[Score]) -> str:
    found = next((row for row in rows if row.metric == "rank_correlation"), None)
    if found is None:
        return "too few edges to say whether size tells effect"
    return f"size and effect: rank correlation {found.value:.2f} ({found.low:.2f} to {found.high:.2f}, p {found.p:.2g})"


def _verdict(rows: Sequence[Score]) -> str:
    found = {row.metric: row for row in rows if row.subject == "pruned"}
    lost, random, sized = (found[name] for name in ("difference", "difference@random", "difference@size"))
    return "\n".join(
        (
            f"kept {found['edges'].value:.0f} edges ({found['kept'].value:.0%}), live states "
            f"{found['live_before'].value:.0f} -> {found['live_after'].value:.0f}, "
            f"{found['unheard'].value:.0f} layers need not run",
            f"loss {lost.value:+.4f} nats ({lost.low:+.4f} to {lost.high:+.4f}) on examples that did not choose",
            f"as many cut by size {sized.value:+.4f}, at random {random.value:+.4f} ({random.low:+.4f} to "
            f"{random.high:+.4f}, p {random.p:.2g})",
        )
    )
