"""One sitting of the study of layer weights: its pretrainings, its fine-tunings, its differences, and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import layerwise.train.weight_study as study
from layerwise.cli.corpora import Corpora
from layerwise.cli.course import discard_models, tell
from layerwise.cli.model import hush
from layerwise.cli.pretraining import (
    Programme,
    announce,
    assess,
    manifest_of,
    pretrain_all,
    programme_of,
    recipe_of,
    refuse_others,
)
from layerwise.cli.screen import PartBar, errors, write
from layerwise.cli.sitting import begin, speaker
from layerwise.measure.overhead import overhead
from layerwise.measure.provenance import folder_of
from layerwise.models import ElcForMaskedLM
from layerwise.models.elc.rewire import rewired
from layerwise.results import Run
from layerwise.train.benchmarks import run_benchmarks
from layerwise.train.finetuning import FineTuning
from layerwise.train.pretraining import Pretraining, new_model

FINE_TUNING = FineTuning(learning_rates=(3e-4,), batch=32, epochs=4, patience=2, length=48)
REWIRED = "rewired"
"""The folder of models that were given layer weights after their pretraining."""

Say = Callable[[str], None]


def hold(
    recipes: tuple[Pretraining, ...],
    seeds: int,
    corpora: Corpora,
    tokenizer: str | None,
    *,
    arguments: Mapping[str, Any],
    folder: Path | None,
    fresh: bool,
    quiet: bool,
    device: str,
) -> None:
    """Carry the study on into `folder`, or into one named by what is learned, and write its report."""
    hush()
    say = speaker(quiet)
    programme = programme_of(
        recipes, seeds, corpora, tokenizer, epochs=None, device=device, arguments=arguments, quiet=quiet
    )
    manifest = replace(manifest_of(programme, corpora.seed), families=("pretraining", "layer-weights"))
    folder = folder or folder_of(manifest, recipe_of(programme))
    with begin(folder, manifest, fresh) as run:
        if fresh:
            discard_models(folder)
        refuse_others(programme, folder)
        announce(programme, run, say)
        try:
            with PartBar(quiet) as bar:
                _carry_out(programme, run, corpora.seed, bar.update, say)
        except KeyboardInterrupt:
            write(errors, "stopped: finished models and checkpoints are kept; the same command goes on from here")
            raise
        tell(run)


def _carry_out(programme: Programme, run: Run, seed: int, progress: Callable[[str, float], None], say: Say) -> None:
    pretrain_all(programme, run.folder, progress, say)
    slower = _timed(programme, run, say)
    timed = next(recipe for recipe in programme.recipes if recipe.arm == study.TIMED)
    later = replace(programme, recipes=(study.at_equal_seconds(timed, slower),))
    pretrain_all(later, run.folder, progress, say)
    assess(programme, run, progress, pairs=study.PAIRS, segments=study.SEGMENTS)
    _fine_tune(programme, run, seed, progress)
    costs = [row for row in run.store.scores(study.MEASURE) if row.metric == "ratio"]
    models = [row for name in ("masked_lm", "pairs", "msgs-ours") for row in run.store.scores(name)]
    run.store.replace_scores(study.MEASURE, [*costs, *study.difference_rows(models)])


def _timed(programme: Programme, run: Run, say: Say) -> float:
    """How much slower a step with layer weights is than the backbone's; timed once: it decides what is trained."""
    stored = run.store.scores(study.MEASURE, metric="ratio")
    if not stored:
        say("timing a step of every arm, round by round")
        models = {
            recipe.arm: new_model(recipe, programme.tokenizer).to(programme.device) for recipe in programme.recipes
        }
        batch = study.batch(programme.recipes[0], len(programme.tokenizer))
        found = overhead(models, {name: tensor.to(programme.device) for name, tensor in batch.items()})
        stored = study.cost_rows(found)
        run.store.replace_scores(study.MEASURE, stored)
    return next(
        row.value for row in stored if (row.subject, row.task) == (f"{study.TIMED} - {study.BACKBONE}", "training step")
    )


def _fine_tune(programme: Programme, run: Run, seed: int, progress: Callable[[str, float], None]) -> None:
    """Four ways to have layer weights, each fine-tuned on our own mixed signals."""
    free: list[tuple[str, Path | str]] = []
    kept: list[tuple[str, Path | str]] = []
    for number in range(programme.seeds):
        places = {arm: run.folder / arm / f"seed-{number}" / "model" for arm in (study.BACKBONE, study.TIMED)}
        free += [(f"{arm}/{number}", place) for arm, place in places.items()]
        free.append((f"{study.REWIRED}/{number}", _rewired(places[study.BACKBONE], run.folder, number)))
        kept.append((f"{study.KEPT}/{number}", places[study.TIMED]))
    tasks = study.tasks(seed)
    told = partial(_told, progress)
    run_benchmarks(free, tasks, FINE_TUNING, run, seeds=1, progress=told, device=programme.device)
    held = replace(FINE_TUNING, held=(".scalars",))
    run_benchmarks(kept, tasks, held, run, seeds=1, progress=told, device=programme.device)


def _told(progress: Callable[[str, float], None], label: str, step: int, steps: int) -> None:
    progress(label, step / steps)


def _rewired(place: Path, folder: Path, seed: int) -> Path:
    """The model at `place` with layer weights that change nothing yet, in a folder beside the arms."""
    found = folder / REWIRED / f"{study.BACKBONE}-{seed}"
    if not (found / "tokenizer.json").is_file():
        from transformers import AutoTokenizer

        rewired(ElcForMaskedLM.from_pretrained(place)).save_pretrained(found)
        AutoTokenizer.from_pretrained(place).save_pretrained(found)
    return found
