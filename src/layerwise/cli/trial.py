"""One trial of robustness: of a run's models, of a single model, or of the demo, whose models it trains first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from layerwise.cli.course import Course, candidates_of, check_is_course, hold, manifest_of, review, tell
from layerwise.cli.lesson import base_of, settings_for
from layerwise.cli.materials import DIGITS, Material
from layerwise.cli.model import hush, open_model
from layerwise.cli.screen import PartBar
from layerwise.cli.sitting import begin, speaker, stopped_in_peace
from layerwise.errors import RunError
from layerwise.measure.provenance import folder_of
from layerwise.measure.survey import Questions
from layerwise.results import Run
from layerwise.stack import weight_hash
from layerwise.train.assessment import Candidate, discard_surveys
from layerwise.train.recipe import METHODS, recipe
from layerwise.train.trained import Trained, open_trained

REDUCED = (9, 6, 3)
"""The depths at which models of the demo are refined for themselves, as in the paper's figure."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the options of `layerwise robustness` say about how a model is opened."""

    tokenizer: str | None
    layers: str | None
    device: str
    dtype: str
    revision: str | None


def of_run(
    folder: Path, questions: Questions, material: Material, opening: Opening, *, fresh: bool, quiet: bool
) -> None:
    """Assess every finished model of a run of `layerwise train`, into the same run; `fresh` asks all of it anew."""
    with Run.open(folder) as recorded:
        check_is_course(recorded)
        manifest = recorded.manifest
    candidates = candidates_of(folder)
    if not candidates:
        raise RunError(f"{folder} holds no finished model yet: run its `layerwise train` again to go on")
    hush()
    opened = partial(open_trained, device=opening.device, dtype=opening.dtype)
    if material.images is None and manifest.corpus == DIGITS:
        material = replace(material, images=DIGITS)
    first = opened(candidates[0].folder)
    source = replace(first.stack.source, name=manifest.model)
    first.stack.source = source
    splits = material.splits(first.stack, str(candidates[0].folder), quiet=quiet)
    if splits.digest != manifest.corpus_hash:
        raise RunError(
            f"{folder} was trained on {manifest.corpus} with other splits than these ({splits.name}), so its test "
            "examples may have been learned from. Give the --images or --text, --limit and --seed of its training"
        )
    say = speaker(quiet)
    with Run.resume_or_create(folder, manifest) as run, stopped_in_peace(run), PartBar(quiet) as bar:
        if fresh:
            discard_surveys(candidates)
        review(run, candidates, splits, questions, say, bar, open_model=opened)
        tell(run)


def of_demo(
    model: str,
    seeds: int,
    questions: Questions,
    material: Material,
    opening: Opening,
    folder: Path | None,
    *,
    fresh: bool,
    quiet: bool,
) -> None:
    """Train every method, and models at reduced depths, from the demo, and assess them all."""
    settings = settings_for(model)
    opener = base_of(model, opening.tokenizer, opening.layers, opening.device, opening.revision)
    splits = material.splits(opener.stack, opener.place, augmentation=settings.augmentation, quiet=quiet)
    depth = opener.stack.depth
    methods = [*(name for name in METHODS if name != "failout"), *(f"retrained-{count}" for count in REDUCED)]
    recipes = [recipe(name, settings, depth) for name in methods]
    arguments = {"use_cpu": True} if opening.device == "cpu" else {}
    course = Course(opener.base(None), splits, tuple(recipes), seeds, arguments)
    hold(course, opener.stack, questions, folder, fresh=fresh, quiet=quiet)


def of_model(
    model: str,
    questions: Questions,
    material: Material,
    opening: Opening,
    folder: Path | None,
    *,
    fresh: bool,
    quiet: bool,
) -> None:
    """Assess one model as it is, into a run of its own."""
    place = Path(model).expanduser()
    hush()
    if (place / "training.json").is_file():
        trained = open_trained(place, device=opening.device, dtype=opening.dtype)
    else:
        stack = open_model(
            model, opening.tokenizer, opening.layers, opening.device, opening.dtype, opening.revision, False
        )
        trained = Trained(stack, None)
    splits = material.splits(trained.stack, str(place), quiet=quiet)
    manifest = manifest_of(trained.stack, weight_hash(trained.stack.model), splits)
    folder = folder or folder_of(manifest)
    arm = trained.pedigree.arm if trained.pedigree is not None else Path(trained.stack.source.name).name
    candidate = Candidate(arm, 0, place, folder)
    say = speaker(quiet)
    with begin(folder, manifest, fresh) as run, stopped_in_peace(run), PartBar(quiet) as bar:
        if fresh:
            discard_surveys((candidate,))
        review(run, (candidate,), splits, questions, say, bar, open_model=lambda _: trained)
        tell(run)
