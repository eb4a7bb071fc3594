"""One trial of robustness: of a run's models, of a single model, or of the demo, whose models it trains first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path

from layerwise.cli.course import (
    Course,
    candidates_of,
    check_is_course,
    hold,
    manifest_of,
    refuse_too_few,
    review,
    tell,
)
from layerwise.cli.lesson import base_of, settings_for
from layerwise.cli.materials import DIGITS, Material
from layerwise.cli.model import hush, open_model
from layerwise.cli.screen import PartBar
from layerwise.cli.sitting import begin, speaker, stopped_in_peace
from layerwise.data.splits import Splits
from layerwise.errors import RunError
from layerwise.measure.provenance import folder_of, in_words
from layerwise.measure.survey import Questions
from layerwise.results import Run
from layerwise.results.pedigree import FILE, RETRAINED
from layerwise.stack import weight_hash
from layerwise.stack.load import resolve_device
from layerwise.train.assessment import Candidate, discard_surveys
from layerwise.train.recipe import COMPARED, Options
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


@dataclass(frozen=True, slots=True)
class Trial:
    """What is asked of which examples, and how; then of whom: a run, the demo, or one model."""

    questions: Questions
    material: Material
    opening: Opening
    _: KW_ONLY
    fresh: bool
    quiet: bool

    def of_run(self, folder: Path) -> None:
        """Assess every finished model of a run of `layerwise train`, into that run; `fresh` asks all of it anew."""
        with Run.open(folder) as recorded:
            check_is_course(recorded)
            manifest = recorded.manifest
        candidates = candidates_of(folder)
        if not candidates:
            raise RunError(f"{folder} holds no finished model yet: run its `layerwise train` again to go on")
        hush()
        opened = partial(open_trained, device=self.opening.device, dtype=self.opening.dtype)
        first = opened(candidates[0].folder)
        first.stack.source = replace(first.stack.source, name=manifest.model)
        material = self.material
        if material.images is None and manifest.corpus == DIGITS:
            material = replace(material, images=DIGITS)
        splits = material.splits(first.stack, str(candidates[0].folder), quiet=self.quiet)
        if splits.digest != manifest.corpus_hash:
            raise RunError(
                f"{folder} was trained on {manifest.corpus} with other splits than these ({splits.name}), so its test "
                "examples may have been learned from. Give the --images or --text, --limit and --seed of its training"
            )
        refuse_too_few(splits)
        with Run.resume_or_create(folder, manifest) as run:
            self._ask(run, candidates, splits, opened)

    def of_demo(self, model: str, seeds: int, folder: Path | None) -> None:
        """Train every method, and models at reduced depths, from the demo, and assess them all."""
        opening = self.opening
        options = Options(settings_for(model))
        opener = base_of(model, opening.tokenizer, opening.layers, opening.device, opening.revision)
        splits = self.material.splits(
            opener.stack, opener.place, augmentation=options.settings.augmentation, quiet=self.quiet
        )
        methods = (*COMPARED, *(f"{RETRAINED}-{count}" for count in REDUCED))
        recipes = options.recipes(methods, opener.stack.depth)
        arguments = {"use_cpu": True} if opening.device == "cpu" else {}
        course = Course(opener.base(None), splits, options, recipes, seeds, arguments)
        hold(course, opener.stack, self.questions, folder, fresh=self.fresh, quiet=self.quiet)

    def of_model(self, model: str, folder: Path | None) -> None:
        """Assess one model as it is, into a run of its own."""
        opening = self.opening
        place = Path(model).expanduser()
        hush()
        if (place / FILE).is_file():
            trained = open_trained(place, device=opening.device, dtype=opening.dtype)
        else:
            stack = open_model(
                model, opening.tokenizer, opening.layers, opening.device, opening.dtype, opening.revision, False
            )
            trained = Trained(stack, None)
        splits = self.material.splits(trained.stack, str(place), quiet=self.quiet)
        refuse_too_few(splits)
        manifest = manifest_of(trained.stack, weight_hash(trained.stack.model), splits)
        folder = folder or folder_of(manifest)
        arm = trained.pedigree.arm if trained.pedigree is not None else Path(trained.stack.source.name).name
        with begin(folder, manifest, self.fresh) as run:
            self._ask(run, (Candidate(arm, 0, place, folder),), splits, lambda _: trained)

    def _ask(
        self, run: Run, candidates: Sequence[Candidate], splits: Splits, opened: Callable[[Path], Trained]
    ) -> None:
        how = in_words(resolve_device(self.opening.device), self.opening.dtype)
        with stopped_in_peace(run), PartBar(self.quiet) as bar:
            if self.fresh:
                discard_surveys(candidates)
            review(run, candidates, splits, self.questions, speaker(self.quiet), bar, open_model=opened, how=how)
            tell(run)
