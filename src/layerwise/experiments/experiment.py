"""An experiment: a frozen configuration, and the steps that it is carried out in.

    configuration --begin--> Outline, units of work, Rows --perform--> Result

`layerwise.experiments.runner.perform` carries any of them out. This module needs no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from layerwise.errors import OptionError
from layerwise.experiments.engines.prepared import steps_of
from layerwise.experiments.engines.steps import Steps
from layerwise.experiments.engines.work import Work
from layerwise.experiments.option import check_options, given_flag, given_options, holds, needed, options_of
from layerwise.experiments.options.run import RunOptions
from layerwise.experiments.reporter import Reporter
from layerwise.measure.workers import Emit, Plain, Spread
from layerwise.results import Manifest, Run

if TYPE_CHECKING:
    from layerwise.data.text.corpus import Corpus
    from layerwise.stack import Stack


@dataclass(frozen=True, slots=True)
class Reads:
    """Options that are read only where `when` holds: what an option needs (`Option.needs`), or a function of the
    configuration; `by` says the latter in words."""

    options: tuple[str, ...]
    when: str | Callable[[Any], bool]
    by: str = ""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Options of which one may be given; `what` completes the refusal: each "say how long to train"."""

    options: tuple[str, ...]
    what: str


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a caller in Python has opened already, in place of what the options name."""

    stack: Stack | None = None
    corpus: Corpus | None = None


@dataclass(frozen=True, kw_only=True)
class Configuration(ABC):
    """Options that are checked when they are made. A configuration needs neither torch nor a model.

    `VERB` is what the command line, a YAML file and the manifest call it. `EXAMPLES` are the arguments of commands that
    its help shows. An option that only some others make use of says so itself (`Option.needs`), or `READS` does.
    `ALTERNATIVES` are options of which one may be given.
    """

    VERB: ClassVar[str]
    EXAMPLES: ClassVar[tuple[str, ...]] = ()
    READS: ClassVar[tuple[Reads, ...]] = ()
    ALTERNATIVES: ClassVar[tuple[Alternatives, ...]] = ()

    def __post_init__(self) -> None:
        check_options(self)
        self.check()
        given = given_options(self)
        for alternatives in self.ALTERNATIVES:
            chosen = [given_flag(self, name) for name in alternatives.options if name in given]
            if len(chosen) > 1:
                *first, last = chosen
                raise OptionError(f"{', '.join(first)} and {last} each {alternatives.what}; give one of them")
        idle: dict[str, list[str]] = {}
        for name, why in unread(self, given):
            idle.setdefault(why, []).append(given_flag(self, name))
        for why, flags in idle.items():
            do, it = ("do", "them") if len(flags) > 1 else ("does", "it")
            raise OptionError(f"{' and '.join(flags)} {do} nothing here: {why}; leave {it} out")

    def check(self) -> None:  # noqa: B027  (most configurations have nothing more to check)
        """Refuse combinations of options that cannot be run, before anything is loaded. Raises a `LayerwiseError`."""


def unread(config: Configuration, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The options among `names` that nothing would read, each with the reason in words."""
    options = options_of(config)
    for name in names:
        needs = options[name][1].needs
        if needs and not holds(config, needs):
            yield name, f"it is read {needed(config, needs)}"
        for reads in config.READS:
            if name not in reads.options:
                continue
            if isinstance(reads.when, str):
                if not holds(config, reads.when):
                    yield name, f"it is read {needed(config, reads.when)}"
            elif not reads.when(config):
                yield name, reads.by


def unread_values(kind: type[Configuration], values: Mapping[str, Any]) -> set[str]:
    """The names among `values` that a configuration of them would not read."""
    # The configuration is not made, since making it would refuse what is looked for here.
    unchecked = object.__new__(kind)
    for each in fields(kind):
        object.__setattr__(unchecked, each.name, values.get(each.name, each.default))
    return {name for name, _ in unread(unchecked, values)}


class Action(Configuration):
    """A verb that computes something at once and keeps no run."""

    @abstractmethod
    def act(self, reporter: Reporter) -> int:
        """Do it; returns the exit code of the command."""


@dataclass(frozen=True, kw_only=True)
class Experiment(RunOptions, Configuration):
    """The configuration of an experiment, whose rows go into a run folder.

    `RUNS` names the function that carries it out, `module:function` below this package: it takes the configuration, a
    reporter and the inputs, and gives `Steps`. As a text it needs no import of what needs torch.
    """

    RUNS: ClassVar[str] = ""

    def begin(self, reporter: Reporter, inputs: Inputs) -> Steps:
        """The experiment as steps, the first of which opens the model and the data."""
        if not self.RUNS:
            return steps_of(self.prepare(reporter, inputs))
        module, _, name = self.RUNS.partition(":")
        steps: Steps = getattr(import_module(f"{__package__}.{module}"), name)(self, reporter, inputs)
        return steps

    def prepare(self, reporter: Reporter, inputs: Inputs) -> Prepared:
        """Open the model and the data of an experiment that is not written as steps."""
        raise NotImplementedError(f"{type(self).__name__} names its steps in RUNS")


class Prepared(ABC):
    """An experiment that is ready to run: its model and data are open, and its cost is known.

    `manifest` is its provenance. `recipe` holds plain values that name the run folder beside the manifest. `folder` is
    the folder of an existing run that the rows belong to, if there is one. `spread` says which workers carry out its
    pieces: this process, unless the options name a cluster.
    """

    manifest: Manifest
    recipe: object = None
    folder: Path | None = None
    spread: Spread = Spread()

    @abstractmethod
    def describe(self) -> Iterator[str]:
        """What will be computed from what, and what it costs, in sentences."""

    def check(self, folder: Path) -> None:  # noqa: B027  (most experiments need none)
        """Refuse what lies in the way in `folder`, before anything is computed. Raises a `LayerwiseError`."""

    def discard(self, folder: Path) -> None:  # noqa: B027  (most experiments need none)
        """Remove what `--overwrite` removes beside the rows of the run: models, checkpoints, caches."""

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The kinds of work that are left to do, each of which can measure a piece of itself; none if that is short.

        `run` holds the rows that are stored, if there is one in `folder`. Work whose price tells that another cannot be
        measured comes before it (`Work.least`).
        """
        return iter(())

    def train(self, folder: Path, reporter: Reporter) -> None:  # noqa: B027  (most experiments need none)
        """Train what is not trained yet into `folder`. Under torchrun every process takes part."""

    def carry_out(self, piece: Plain, emit: Emit) -> Plain:
        """In a worker: one piece of the work, as `train` and `measure` hand them out."""
        raise NotImplementedError(f"{type(self).__name__} hands out no pieces")

    def models_of(self, folder: Path) -> Mapping[str, Path]:
        """The folders of the models that `train` and `measure` leave in the run `folder`, by arm and seed."""
        return {}

    def is_empty(self, run: Run) -> bool:
        """Whether `run` has no row that a report could show."""
        return not run.store.scores()

    @abstractmethod
    def measure(self, run: Run, reporter: Reporter) -> None:
        """Compute the rows that are missing in `run` and store them; the first process alone does."""

    def results(self, run: Run) -> Sequence[str]:
        """Tables that stand before the summary on a terminal."""
        return ()
