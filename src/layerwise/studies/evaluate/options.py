"""The configuration of an evaluation: which models, on which suites of minimal pairs and fine-tuned tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from layerwise.bounded import kind_of, named
from layerwise.errors import DataError, OptionError, RunError, near_matches
from layerwise.plan import EdgeCut
from layerwise.results.run import is_run
from layerwise.runner.experiment import Alternatives, Experiment, Reads
from layerwise.runner.option import option
from layerwise.runner.options.common import ModelOptions
from layerwise.runner.options.plans import PlanOptions
from layerwise.runner.options.training import FineTuningOptions

# Those of `layerwise.data.suites`, which is too heavy for a help text; a test compares them.
SUITES = ("pairs", "blimp", "supplement", "ewok", "glue", "msgs", "msgs-ours", "attribution")
FINE_TUNED = ("glue", "msgs", "msgs-ours", "attribution")
"""The suites that models are fine-tuned on; the others are scored as they are."""

PAIRS = tuple(name for name in SUITES if name not in FINE_TUNED)
GENERATED = ("pairs", "msgs-ours", "attribution")
"""The suites that layerwise makes itself; the others are files."""

LAYER_WEIGHTS = ("held", "added")

FILE = "file"


def _of(*suites: str) -> Any:
    return lambda config: any((name if name in SUITES else FILE) in suites for name in config.suite)


@dataclass(frozen=True, kw_only=True)
class Evaluation(PlanOptions, FineTuningOptions, ModelOptions, Experiment):
    """Evaluate language models on minimal pairs, and on fine-tuned tasks.

    Models are masked or causal. Every trained model of a run is evaluated, and the rows go into that run. Chance on a
    pair is 0.5. A plan is active in fine-tuning and in the test, and the model as trained is always fine-tuned beside
    it.
    """

    VERB: ClassVar = "evaluate"
    RUNS: ClassVar = "evaluate.steps:evaluation"
    EXAMPLES: ClassVar = (
        "demo",
        "runs/elc --suite pairs,blimp,glue --data FOLDER",
        "./bert --suite glue --data FOLDER --families painters",
        "bert-base-cased --suite my_pairs.jsonl",
    )
    ALTERNATIVES: ClassVar = (Alternatives(("minutes", "limit"), "say how many pairs are scored"),)
    READS: ClassVar = (
        Reads(
            ("data",),
            _of(*(set(SUITES) - set(GENERATED))),
            "published suites are read from there, and --suite names none",
        ),
        Reads(("password",), _of("ewok", FILE), "it opens the archive of EWoK or a file of pairs"),
        Reads(
            ("temperature", "too_long", "minutes", "without_edges"),
            _of(*PAIRS, FILE),
            "suites of pairs read it, and --suite names none",
        ),
        Reads(
            (
                *("seeds", "families", "plan", "window", "train", "learning_rate", "batch_size", "epochs", "patience"),
                *("max_length", "published", "curve_points", "layer_weights"),
            ),
            _of(*FINE_TUNED),
            f"fine-tuning reads it, and --suite names none of {', '.join(FINE_TUNED)}",
        ),
        Reads(
            ("tokenizer", "layers", "revision", "trust_remote_code"),
            lambda config: not is_run(config.model),
            "the models of a run are opened as they were trained",
        ),
    )

    model: str = option(
        help="Run with trained models, hub id, folder, or demo.",
        metavar="RUN_OR_MODEL",
        positional=True,
        is_location=True,
    )
    suite: tuple[str, ...] = option(("pairs",), metavar="NAMES", empty=True)
    data: Path | None = option(None, metavar="FOLDER")
    password: str | None = option(None, metavar="TEXT", setting=True)
    without_edges: tuple[str, ...] = option(
        (),
        "Score pairs again without some layer weights: 30% (the weakest), 3<-0, 3<-0+4<-1 (both), *<-1 (by source).",
        metavar="EDGES",
        rare=True,
    )
    layer_weights: tuple[str, ...] = option(
        (),
        "Also fine-tune elc with its layer weights held (held), and ltg with weights added to it (added).",
        metavar="NAMES",
        rare=True,
    )
    temperature: float = option(
        1.0, "Temperature of the softmax that scores a sentence.", metavar="X", setting=True, above=0
    )
    too_long: Literal["refuse", "skip"] = option(
        "refuse", "What is done about sentences longer than the model's positions.", setting=True
    )
    limit: int | None = option(None, metavar="N", least=1, rare=True)
    minutes: float | None = option(
        None,
        "Score as many pairs of each paradigm as N minutes allow; by default all.",
        metavar="N",
        least=1,
        most=10_000,
    )
    overwrite: bool = option(False)

    def check(self) -> None:
        """Raise `DataError` for suites, tasks and files that there are not, `PlanError` for plans that are none,
        `OptionError` for minutes of a fine-tuning, and `RunError` for a run beside a run."""
        if not self.suite:
            raise DataError(f"--suite names nothing; give one or more of {', '.join(SUITES)}, or a file of pairs")
        for name in self.suite:
            if name not in SUITES and kind_of(name) == "nothing":
                raise DataError(f"there is no suite and no file {named(name)!r}; {near_matches(name, SUITES)}")
            if name in SUITES and name not in GENERATED and self.data is None:
                raise DataError(f"{name} is not part of layerwise: give the folder that holds its files, --data FOLDER")
        for name in self.layer_weights:
            if name not in LAYER_WEIGHTS:
                raise OptionError(f"--layer-weights must be held or added, got {named(name)!r}")
        if self.tasks and not set(self.suite) & set(FINE_TUNED):
            raise DataError(
                f"--tasks chooses among those that models are fine-tuned on; add one of {', '.join(FINE_TUNED)} to "
                "--suite"
            )
        if self.minutes is not None and set(self.suite) & set(FINE_TUNED):
            raise OptionError(
                "--minutes says how many pairs are scored, and a fine-tuning takes what its examples and epochs take: "
                f"evaluate {', '.join(sorted(set(self.suite) & set(FINE_TUNED)))} by themselves, with --limit N"
            )
        for text in self.without_edges:
            EdgeCut.parse(text)
        if self.without_edges and self.minutes is not None:
            raise OptionError(
                "--without-edges evaluates every pair dozens of times, which --minutes does not count: use --limit N"
            )
        self.check_plans()
        if self.run is not None and is_run(self.model):
            raise RunError(f"the rows go into the run that was given, {self.model}: leave out --run {self.run}")
