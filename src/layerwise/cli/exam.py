"""One exam of language models: of a run's models or a single one, on pairs and on tasks they are fine-tuned on."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from pathlib import Path

from layerwise.cli.course import candidates_of, tell
from layerwise.cli.evaluate import FINE_TUNED
from layerwise.cli.model import hush, open_model
from layerwise.cli.screen import PartBar, errors, output, write
from layerwise.cli.sitting import speaker
from layerwise.data.classification import Task
from layerwise.data.glue import FORMS, read_tasks
from layerwise.data.grammar import SUITE as OURS
from layerwise.data.grammar import generated_pairs
from layerwise.data.minimal_pairs import SUITES as PUBLISHED
from layerwise.data.minimal_pairs import PairSet, find_pairs, read_pairs
from layerwise.data.mixed_signals import mixed_signals
from layerwise.data.msgs import read_msgs
from layerwise.errors import DataError, ModelError, RunError, near_matches
from layerwise.measure.acceptability import ALL, CHANCE
from layerwise.measure.provenance import described, folder_of, in_words
from layerwise.measure.pseudo_likelihood import TooLong
from layerwise.results import Manifest, Run
from layerwise.results.pedigree import FILE, Pedigree
from layerwise.stack import Stack, weight_hash
from layerwise.stack.load import resolve_device
from layerwise.train.benchmarks import CHANCE as GUESSED
from layerwise.train.benchmarks import run_benchmarks
from layerwise.train.evaluation import Examinee, Judging, Opened, discard, evaluate_models
from layerwise.train.finetuning import FineTuning
from layerwise.train.trained import open_trained

FAMILY = "evaluation"
"""What the manifest of an exam of a single model calls itself."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the options say about how a model is opened."""

    tokenizer: str | None
    device: str
    dtype: str
    revision: str | None
    trust_remote_code: bool

    def single(self, model: str) -> Stack:
        """The stack of a model that is no run."""
        place = Path(model).expanduser()
        if (place / FILE).is_file():
            return open_trained(place, device=self.device, dtype=self.dtype).stack
        return open_model(model, self.tokenizer, None, self.device, self.dtype, self.revision, self.trust_remote_code)

    def trained(self, folder: Path) -> Opened:
        """A run's model with its tokenizer."""
        return _speaking(open_trained(folder, device=self.device, dtype=self.dtype).stack)


@dataclass(frozen=True)
class Sources:
    """What is asked, and where it lies: the suites' names or files, of their tasks only some, the folder, the archive's
    word, the bounds."""

    names: tuple[str, ...]
    only: tuple[str, ...]
    data: Path | None
    password: str | None
    limit: int | None
    seed: int

    @cached_property
    def pairs(self) -> tuple[PairSet, ...]:
        """The suites of minimal pairs, read. Raises `DataError` for those that are not where they should be."""
        found = []
        for name in self.names:
            if name == OURS:
                found.append(generated_pairs(seed=self.seed))
            elif name in PUBLISHED:
                found.append(find_pairs(name, self._data, password=self.password))
            elif name not in FINE_TUNED:
                found.append(read_pairs([Path(name)], password=self.password))
        return tuple(each.first(self.limit) for each in found)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks that models are fine-tuned on, read, and of them those that were asked for.

        Raises `DataError` for a name that no task has.
        """
        found: list[Task] = []
        if "glue" in self.names:
            places = (self._data, *sorted(path for path in self._data.rglob("glue*") if path.is_dir()))
            wanted = [name.casefold() for name in self.only if name.casefold() in FORMS]
            found += read_tasks(places, wanted or None, seed=self.seed)
        if "msgs" in self.names:
            place = self._data / "msgs"
            found += read_msgs(place if place.is_dir() else self._data, seed=self.seed)
        if "msgs-ours" in self.names:
            found += mixed_signals(seed=self.seed)
        known = {task.name.casefold(): task for task in found}
        for name in self.only:
            if name.casefold() not in known:
                raise DataError(f"there is no task {name!r}; {near_matches(name, known)}")
        return tuple(known[name.casefold()] for name in self.only) if self.only else tuple(found)

    @property
    def digest(self) -> str:
        """A hash over everything that is asked."""
        parts = [pairs.digest for pairs in self.pairs] + [task.digest for task in self.tasks]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    @property
    def _data(self) -> Path:
        return self.data or Path()


@dataclass(frozen=True, slots=True)
class Exam:
    """What is asked, how models are opened and sentences scored, and how often a model is fine-tuned on a task."""

    sources: Sources
    opening: Opening
    temperature: float
    too_long: TooLong
    seeds: int
    _: KW_ONLY
    fresh: bool
    quiet: bool

    def of(self, model: str, folder: Path | None) -> None:
        """Ask a run's models, or one model; `folder` is the run of a single model, by default named by what is asked.

        Raises `RunError` for a run without a finished model, or where a run was given and `folder` too.
        """
        hush()
        pairs, tasks = self.sources.pairs, self.sources.tasks  # what is not there is said before a model is opened
        opening = self.opening
        judging = Judging(self.temperature, self.too_long, in_words(resolve_device(opening.device), opening.dtype))
        if (Path(model) / "manifest.json").is_file():
            if folder is not None:
                raise RunError(f"what is found goes into the run that was given, {model}: leave out --run {folder}")
            self._of_run(Path(model), pairs, tasks, judging)
        else:
            self._of_model(model, folder, pairs, tasks, judging)

    def _of_run(self, folder: Path, pairs: Sequence[PairSet], tasks: Sequence[Task], judging: Judging) -> None:
        with Run.open(folder) as recorded:
            manifest = recorded.manifest
        candidates = candidates_of(folder)
        if not candidates:
            raise RunError(f"{folder} holds no finished model (RUN/ARM/seed-N/model); train one, or give a model")
        models = {each.label: each.folder for each in candidates}
        with Run.resume_or_create(folder, manifest) as run:
            examinees = [Examinee(label, partial(self.opening.trained, place)) for label, place in models.items()]
            self._ask(run, examinees, list(models.items()), pairs, tasks, judging)

    def _of_model(
        self, model: str, folder: Path | None, pairs: Sequence[PairSet], tasks: Sequence[Task], judging: Judging
    ) -> None:
        stack = self.opening.single(model)
        opened = _speaking(stack)
        manifest = self._manifest(stack, pairs, tasks)
        pedigree = Pedigree.read(Path(model).expanduser())
        name = Path(model).name
        label = f"{name}/0" if pedigree is None else f"{pedigree.arm}/{pedigree.seed}"
        with Run.resume_or_create(folder or folder_of(manifest), manifest) as run:
            self._ask(run, [Examinee(label, lambda: opened)], [(label, model)], pairs, tasks, judging)

    def _manifest(self, stack: Stack, pairs: Sequence[PairSet], tasks: Sequence[Task]) -> Manifest:
        asked = sum(len(each.pairs) for each in pairs) + sum(len(task.test) for task in tasks)
        origins = [each.origin for each in pairs] + [task.name for task in tasks]
        return described(
            stack, weight_hash(stack.model), corpus="; ".join(origins), corpus_hash=self.sources.digest,
            documents=asked, tokens=asked, window=1, families=(FAMILY,), tasks=self.sources.names,
            seed=self.sources.seed, command=tuple(sys.argv),
        )  # fmt: skip

    def _ask(
        self,
        run: Run,
        examinees: Sequence[Examinee],
        places: Sequence[tuple[str, Path | str]],
        pairs: Sequence[PairSet],
        tasks: Sequence[Task],
        judging: Judging,
    ) -> None:
        say = speaker(self.quiet)
        say(f"{len(examinees)} model{'s' * (len(examinees) != 1)}; run folder: {run.folder}")
        if self.fresh:
            discard(pairs, run)
        try:
            with PartBar(self.quiet) as bar:
                evaluate_models(examinees, pairs, judging, run, progress=bar.update)
                settings = FineTuning(training_limit=self.sources.limit, test_limit=self.sources.limit)
                run_benchmarks(
                    places, tasks, settings, run, seeds=self.seeds, device=self.opening.device,
                    progress=lambda label, step, steps: bar.update(label, step / steps),
                )  # fmt: skip
        except KeyboardInterrupt:
            write(errors, "stopped: finished paradigms and tasks are kept; the same command goes on from here")
            raise
        for each in pairs:
            write(output, standing(run, each))
        for suite in dict.fromkeys(task.measure for task in tasks):
            write(output, task_standing(run, suite, [task for task in tasks if task.measure == suite]))
        tell(run)


def standing(run: Run, pairs: PairSet) -> str:
    """Where every arm stands on a suite: its accuracy over all paradigms, with the interval, and the words it knows."""
    lines = [f"{pairs.suite} ({pairs.origin}; chance {CHANCE}):"]
    known, whole = (
        {row.subject: row.value for row in run.store.scores(pairs.suite, task=ALL, metric=metric)}
        for metric in ("coverage", "whole_words")
    )
    for row in run.store.scores(pairs.suite, task=ALL, metric="accuracy"):
        if "/" not in row.subject and row.low is not None and row.high is not None:
            lines.append(
                f"  {row.subject:24} {row.value:.3f} [{row.low:.3f}, {row.high:.3f}]   "
                f"{known[row.subject]:.1%} of words known, {whole[row.subject]:.1%} as one token"
            )
    return "\n".join(lines)


def task_standing(run: Run, suite: str, tasks: Sequence[Task]) -> str:
    """Where every arm stands on the tasks of a suite: the metric that the field reports, with the interval, beside what
    always giving the commonest answer gives."""
    lines = [f"{suite} (fine-tuned; beside each score what always giving the commonest answer gives):"]
    width = max(len(task.name) for task in tasks)
    for task in tasks:
        name, metric = task.name, task.metric
        guessed = {row.subject: row.value for row in run.store.scores(suite, task=name, metric=metric + GUESSED)}
        for row in run.store.scores(suite, task=name, metric=metric):
            if "/" not in row.subject and row.low is not None and row.high is not None:
                shown = f"{row.value:.3f} [{row.low:.3f}, {row.high:.3f}]   commonest {guessed[row.subject]:.3f}"
                lines.append(f"  {name:{width}} {row.subject:16} {metric:8} {shown}")
    return "\n".join(lines)


def _speaking(stack: Stack) -> Opened:
    """The model and its tokenizer. Raises `ModelError` where there is no tokenizer."""
    if stack.tokenizer is None:
        raise ModelError(f"{stack.source.name} has no tokenizer beside it; give one with --tokenizer PATH")
    return stack.model, stack.tokenizer
