"""Pretrainings side by side: several variants and seeds on one text, then what each knows, and the report.

Every training resumes by itself, so a command that was stopped goes on where it was. Under torchrun every process
takes part in the trainings, and the first one alone writes rows and speaks.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from layerwise.cli.corpora import Corpora
from layerwise.cli.course import candidates_of, discard_models, tell
from layerwise.cli.exam import standing
from layerwise.cli.model import hush
from layerwise.cli.screen import PartBar, duration, errors, output, write
from layerwise.cli.sitting import begin, speaker
from layerwise.data.grammar import generated_pairs
from layerwise.data.segments import PretrainingText, cut, pretraining_text
from layerwise.data.tokenizer import load_tokenizer
from layerwise.data.wordpiece import check_tokenizer, train_wordpiece
from layerwise.measure.contrasts.contrast import MEASURE as CONTRAST
from layerwise.measure.contrasts.contrast import renewed
from layerwise.measure.contrasts.mixture import CLAIMS, pattern
from layerwise.measure.likeness import MEASURE as LIKENESS
from layerwise.measure.likeness import likeness_scores, weights_by_seed
from layerwise.measure.provenance import folder_of, hardware, in_words, numerics
from layerwise.measure.statistics import Numbers
from layerwise.models import ElcForMaskedLM
from layerwise.models.elc.variants import find_variant
from layerwise.results import Manifest, Run
from layerwise.results.pedigree import Pedigree
from layerwise.results.rows import Score
from layerwise.stack.load import resolve_device
from layerwise.train.assessment import training_rows
from layerwise.train.evaluation import Examinee, Judging, Opened, evaluate_models
from layerwise.train.folder import occupant
from layerwise.train.pretrained import ALPHA, HELD_OUT, LATENCY, TRAINING, arm_means, pretrained_rows
from layerwise.train.pretrainer import asked_for, pretrain
from layerwise.train.pretraining import Pretraining, new_model, pretraining
from layerwise.train.processes import is_first_process, shared_recipe, training_settings
from layerwise.train.recipe import check_positive

FAMILY = "pretraining"
"""What the manifest of such a run calls itself."""

PAIRS = 100
"""Minimal pairs of each paradigm that models are asked at the end; `layerwise evaluate` asks more."""

SEGMENTS = 4_096
"""Held-out segments that models are asked at the end, at most, spread over all documents."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Programme:
    """What is pretrained: recipes, each with every seed from 0 on, on one text with one tokenizer.

    `arguments` are further `TrainingArguments`, which win over the recipes'.
    """

    recipes: tuple[Pretraining, ...]
    seeds: int
    tokenizer: PreTrainedTokenizerBase
    text: PretrainingText
    device: str = "cpu"
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def trainings(self, folder: Path) -> Iterator[tuple[Pretraining, int, Path]]:
        """Every pretraining: its recipe, its seed, and its folder in that of the run."""
        for seed in range(self.seeds):
            for recipe in self.recipes:
                yield recipe, seed, folder / recipe.arm / f"seed-{seed}"


def recipes_of(
    size: str, variants: tuple[str, ...], initialisation: str | None, changes: Mapping[str, Any]
) -> tuple[Pretraining, ...]:
    """The recipe of every variant, `changes` made to each; an initialisation is part of what an arm is called.

    Raises `TrainError` and `ModelError` for what there is not, with the near matches.
    """
    found = []
    for variant in variants:
        wired = initialisation is not None and variant != "ltg"
        arm = f"{variant}-{initialisation}" if wired else variant
        more = {"initialisation": initialisation} if wired else {}
        found.append(pretraining(size, variant, arm=arm, **more, **changes))
    return tuple(found)


def programme_of(
    recipes: tuple[Pretraining, ...],
    seeds: int,
    corpora: Corpora,
    tokenizer: str | None,
    *,
    epochs: float | None,
    device: str,
    arguments: Mapping[str, Any],
    quiet: bool,
) -> Programme:
    """Read the texts, learn the tokenizer or open the one that is named, and encode; `epochs` replaces the steps."""
    say = speaker(quiet)
    name, found = corpora.divided()
    parts = found.parts
    for note in found.notes:
        say(f"note: {note}")
    if tokenizer is None:
        say(f"learning a vocabulary from {len(parts['train']):,} documents of {name}")
        speller: PreTrainedTokenizerBase = train_wordpiece(
            (each.text for each in parts["train"]), vocabulary=recipes[0].vocabulary
        )
    else:
        speller = load_tokenizer(tokenizer)
        check_tokenizer(speller, tokenizer)
    with PartBar(quiet) as bar:
        encoded = pretraining_text(speller, name, parts, bar.update)
    counts = [len(cut(encoded.train, length)) for length in recipes[0].lengths]
    if epochs is not None:
        check_positive("epochs", epochs)
        segments = counts[0]
        recipes = tuple(replace(each, steps=max(1, math.ceil(epochs * segments / each.batch))) for each in recipes)
    recipes[0].phases(counts)  # a text smaller than a batch is refused before there is a run folder
    return Programme(recipes, seeds, speller, encoded, str(resolve_device(device)), arguments)


def hold(programme: Programme, folder: Path | None, *, seed: int, fresh: bool, quiet: bool) -> None:
    """Pretrain what is not trained yet into `folder`, or into one named by what is learned, and tell what it knows."""
    hush()
    manifest = manifest_of(programme, seed)
    folder = folder or folder_of(manifest, recipe_of(programme))
    if not is_first_process():
        pretrain_all(programme, folder, lambda label, share: None, lambda text: None)
        return
    say = speaker(quiet)
    with begin(folder, manifest, fresh) as run:
        if fresh:
            discard_models(folder)
        refuse_others(programme, folder)
        announce(programme, run, say)
        try:
            with PartBar(quiet) as bar:
                pretrain_all(programme, folder, bar.update, say)
                assess(programme, run, bar.update, pairs=PAIRS, segments=SEGMENTS)
        except KeyboardInterrupt:
            write(errors, "stopped: finished models and checkpoints are kept; the same command goes on from here")
            raise
        write(output, standing(run, generated_pairs(PAIRS)))
        tell(run)


def manifest_of(programme: Programme, seed: int) -> Manifest:
    """The provenance of a programme; variants and seeds can be added later."""
    recipe, text = programme.recipes[0], programme.text
    content = json.dumps([recipe.size, sorted(programme.tokenizer.get_vocab().items())])
    return Manifest(
        model=f"elc-{recipe.size}", revision=None, weight_hash=hashlib.sha256(content.encode()).hexdigest(),
        dtype="float32", device=programme.device, corpus=text.name, corpus_hash=text.digest,
        documents=len(text.test.names), tokens=len(text.test.ids), window=recipe.lengths[0], families=(FAMILY,),
        tasks=(), seed=seed, layers="encoder.layers", command=tuple(sys.argv),
        numerics=numerics(programme.device, None, **training_settings(programme.arguments)),
        hardware=hardware(programme.device),
    )  # fmt: skip


def recipe_of(programme: Programme) -> dict[str, object]:
    """What every pretraining of a programme has in common: all but the variant and how its layer weights begin."""
    options = asdict(programme.recipes[0])
    for name in ("arm", "variant", "initialisation", "held"):
        del options[name]
    return shared_recipe(options, programme.arguments)


def refuse_others(programme: Programme, folder: Path) -> None:
    """Raise `TrainError` where another pretraining lies in the way of any of these, before the first of them."""
    for recipe, seed, place in programme.trainings(folder):
        occupant(place, asked_for(programme.tokenizer, programme.text, recipe, seed))


def announce(programme: Programme, run: Run, say: Say) -> None:
    """Say what will be learned from what, and where it will lie."""
    text, recipe = programme.text, programme.recipes[0]
    sizes = ", ".join(
        f"{len(part.names):,} {role}" for part, role in
        ((text.train, "to train"), (text.validation, "to look at"), (text.test, "to report"))
    )  # fmt: skip
    skipped = f"; {len(text.skipped):,} without a word were skipped" if text.skipped else ""
    say(f"{text.name}: documents {sizes}{skipped}")
    say(f"{len(text.train.ids):,} tokens to train on, a vocabulary of {len(programme.tokenizer):,}")
    arms = ", ".join(each.arm for each in programme.recipes)
    length = f"{recipe.seconds:,.0f} seconds" if recipe.seconds else f"{recipe.steps:,} steps"
    say(f"{arms}; {programme.seeds} seed{'s' * (programme.seeds != 1)} each, {length}")
    say(f"run folder: {run.folder}")
    for change in run.changes:
        say(f"note: {change}")


def pretrain_all(programme: Programme, folder: Path, progress: Callable[[str, float], None], say: Say) -> None:
    """Every recipe with every seed, into `FOLDER/ARM/seed-N`; what is finished is not trained again."""
    for recipe, seed, place in programme.trainings(folder):
        label = f"{recipe.arm}/{seed}"

        def told(step: int, steps: int, loss: float | None, label: str = label) -> None:
            progress(label if loss is None else f"{label}  loss {loss:.3f}", step / steps)

        done = pretrain(
            programme.tokenizer, programme.text, recipe, seed, place, progress=told, arguments=programme.arguments
        )
        looked = [moment.loss for moment in done.history if moment.kind == "validation"]
        say(
            f"{label}: {done.steps:,} step{'s' * (done.steps != 1)} in {duration(done.seconds)}"
            + (f", validation loss {looked[0]:.3f} at first and {looked[-1]:.3f} at last" if looked else "")
        )


def assess(
    programme: Programme,
    run: Run,
    progress: Callable[[str, float], None],
    *,
    pairs: int,
    segments: int,
) -> None:
    """The rows of every finished model in the run; those that are there already are kept.

    `pairs` is the number of minimal pairs of each paradigm, `segments` the most held-out segments.
    """
    models = candidates_of(run.folder)
    stored = [row for measure in (HELD_OUT, ALPHA) for row in run.store.scores(measure)]
    stored += run.store.scores(TRAINING, metric=LATENCY)
    known = {row.subject for row in stored}
    rows = [row for row in stored if "/" in row.subject]
    recipe = programme.recipes[0]  # all read and mask alike
    for number, each in enumerate(models):
        if each.label not in known:
            progress(f"{each.label}  held-out text", number / len(models))
            rows += pretrained_rows(
                each.label, each.folder, programme.text.test, recipe, limit=segments, device=programme.device
            )
    pedigrees = {each.label: Pedigree.read(each.folder) for each in models}
    rows += arm_means(rows)
    rows += training_rows({label: pedigree for label, pedigree in pedigrees.items() if pedigree is not None})
    for measure in (HELD_OUT, ALPHA, TRAINING):
        run.store.replace_scores(measure, [row for row in rows if row.measure == measure])
    examinees = [Examinee(each.label, partial(_opened, each.folder, programme)) for each in models]
    run.store.replace_scores(LIKENESS, _likeness(programme, rows))
    patterns = _patterns(programme, rows)
    run.store.replace_scores(CONTRAST, renewed(run.store.scores(CONTRAST), patterns, CLAIMS))
    evaluate_models(
        examinees, [generated_pairs(pairs)], Judging(how=in_words(programme.device, "auto")), run, progress=progress
    )


def _likeness(programme: Programme, rows: list[Score]) -> list[Score]:
    """Whether the seeds of each arm that learns layer weights have learned the same ones."""
    found = []
    for recipe, first in _learning(programme):
        found += likeness_scores(recipe.arm, weights_by_seed(rows, recipe.arm), initial=first)
    return found


def _patterns(programme: Programme, rows: list[Score]) -> list[Score]:
    """What the embedding and the previous layer carry, in each arm that learns weights of sum one."""
    found = []
    for recipe, first in _learning(programme):
        if find_variant(recipe.variant).mixture == "softmax":
            found += pattern(recipe.arm, weights_by_seed(rows, recipe.arm), first)
    return found


def _learning(programme: Programme) -> Iterator[tuple[Pretraining, Numbers]]:
    """The recipes that learn layer weights, each with those that it begins with, (readers, sources)."""
    for recipe in programme.recipes:
        first = new_model(recipe, programme.tokenizer).layer_weights()
        if first is not None and not recipe.held:
            yield recipe, first.detach().numpy().astype("float64")


def _opened(folder: Path, programme: Programme) -> Opened:
    return ElcForMaskedLM.from_pretrained(folder).to(programme.device), programme.tokenizer
