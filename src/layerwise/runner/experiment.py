"""An experiment: a frozen configuration, and the steps that `perform` carries it out in. Needs no torch."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from layerwise.errors import OptionError
from layerwise.runner.option import check_options, given_flag, given_options, holds, needed, options_of
from layerwise.runner.options.common import RunOptions
from layerwise.runner.reporter import Reporter
from layerwise.runner.steps import Steps

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


AMOUNT_OF_TEXT = Alternatives(("minutes", "tokens"), "say how much text is read")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a caller in Python has opened already, in place of what the options name.

    `batches` and `metric` are those of `layerwise.measure.own_batches`.
    """

    stack: Stack | None = None
    corpus: Corpus | None = None
    batches: Iterable[Mapping[str, Any]] | None = None
    metric: Callable[..., Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Configuration(ABC):
    """Options that are checked on creation, without torch or a model.

    `VERB` is its name on the command line, in YAML and in the manifest; `EXAMPLES` are arguments shown in its help.
    `READS` says when an option is used, as `Option.needs` does. Of `ALTERNATIVES` one may be given.
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


def _named_function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    named: Callable[..., Any] = getattr(import_module(f"layerwise.studies.{module}"), function)
    return named


def unread(config: Configuration, names: Iterable[str]) -> Iterator[tuple[str, str]]:
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
    # The configuration is not made, since making it would refuse what is looked for here.
    unchecked = object.__new__(kind)
    for each in fields(kind):
        object.__setattr__(unchecked, each.name, values.get(each.name, each.default))
    return {name for name, _ in unread(unchecked, values)}


class Action(Configuration):
    """A verb that computes something at once and keeps no run; `RUNS` names its function as that of `Experiment`."""

    RUNS: ClassVar[str]

    def act(self, reporter: Reporter) -> int:
        """Do it; returns the exit code of the command."""
        code: int | None = _named_function(self.RUNS)(self, reporter)
        return code or 0


@dataclass(frozen=True, kw_only=True)
class Experiment(RunOptions, Configuration):
    """The configuration of an experiment, whose rows go into a run folder.

    `RUNS` is the `module:function` below `layerwise.studies` that takes the configuration, a reporter and the inputs
    and returns `Steps`; it is a string, so that torch need not be imported.
    """

    RUNS: ClassVar[str]

    def begin(self, reporter: Reporter, inputs: Inputs) -> Steps:
        steps: Steps = _named_function(self.RUNS)(self, reporter, inputs)
        return steps
