"""The verbs in Python: one function an experiment, with the names and the options of the command line.

    result = layerwise.sweep(stack, corpus, families=("painters",))
    result.rows, result.table(), result.report("page.html")

A model is a `Stack`, a model of transformers or any torch module, a text a `Corpus` or a list of strings; or either is
what the command line takes: a name, a path. `options` are the fields of the experiment's configuration; a path may be
given as a text, and a tuple as a list. Without a `reporter` the terminal or the notebook shows the progress; `Silent()`
shows nothing. Rows go into a run folder (option `run`), and the same call resumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerwise.errors import DataError, ModelError
from layerwise.experiments.catalogue import configuration, experiment
from layerwise.experiments.comparison.result import ComparisonResult
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.option import configured, split_commas
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.result import Result
from layerwise.experiments.routing.result import RoutingResult
from layerwise.experiments.search.result import SearchResult

if TYPE_CHECKING:
    from torch import nn

    from layerwise.data.text.corpus import Corpus
    from layerwise.plan import Plan
    from layerwise.search.budget import Budget
    from layerwise.stack import Stack

    Model = Stack | nn.Module
    Text = Corpus | Sequence[str]


def sweep(
    model: Model | str | Path, text: Text | str | Path | None = None, *, reporter: Reporter | None = None,
    **options: Any,
) -> Result:  # fmt: skip
    """Measure many plans on one model and text, with intervals; `options` are the fields of `Sweep`.

    Each plan's effect is the paired difference of its loss to that of the trained order, in nats per token, with a
    bootstrap interval over documents. Raises a `LayerwiseError` for options, models and texts that cannot be.
    """
    return perform_verb("sweep", model, text, reporter, options)


def diagnose(
    model: Model | str | Path, text: Text | str | Path | None = None, *, reporter: Reporter | None = None,
    **options: Any,
) -> Result:  # fmt: skip
    """Measure which layers of a model matter, with an interval and a null beside every score.

    `options` are the fields of `Diagnosis`. Effects are in nats per token. Raises a `LayerwiseError` for options,
    models and texts that cannot be, such as a model of fewer than 4 layers.
    """
    return perform_verb("diagnose", model, text, reporter, options)


def search(
    model: Model | str | Path, text: Text | str | Path | None = None, budget: Budget | str | None = None, *,
    reporter: Reporter | None = None, **options: Any,
) -> SearchResult:  # fmt: skip
    """Search the plan within `budget` that loses least, and confirm it on text that chose nothing.

    `options` are the fields of `Search`. The result has `.best`, `.front` and `.confirmed`; losses are in nats per
    token above the model as trained. Raises a `LayerwiseError` for options, models and texts that cannot be.
    """
    given = {} if budget is None else {"budget": str(budget)}
    return SearchResult(perform_verb("search", model, text, reporter, {**given, **options}).folder)


def route(model: Model | str | Path, *, reporter: Reporter | None = None, **options: Any) -> RoutingResult:
    """Fit a router that chooses a plan for each prompt, and compare it with fixed plans at the same mean layers.

    `options` are the fields of `Routing`. The result has `.router` and `.verdicts`; scores are shares of right answers,
    or nats a question. Raises a `LayerwiseError` for options, models and task sets that cannot be.
    """
    return RoutingResult(perform_verb("route", model, None, reporter, options).folder)


def time(
    model: Model | str | Path, *, plans: str | Iterable[str], reporter: Reporter | None = None, **options: Any
) -> Result:  # fmt: skip
    """Time passes of a model under `plans`, in turns; `options` are the fields of `Timing`.

    The rows of measure `time` are milliseconds (`ms`) and ratios to the first plan (`ratio`), medians over rounds with
    intervals. Raises a `LayerwiseError` for options, plans and models that cannot be.
    """
    options["plans"] = (plans,) if isinstance(plans, str) else tuple(map(str, plans))
    return perform_verb("time", model, None, reporter, options)


def frontier(
    model: Model | str | Path, text: Text | str | Path | None = None, *, reporter: Reporter | None = None,
    **options: Any,
) -> Result:  # fmt: skip
    """Measure what a model loses for the milliseconds that it saves, and whether parallel layers are ever the best way.

    `options` are the fields of `LatencyFrontier`. Losses are in nats per token above the model as trained, on text
    that chose no plan; times are medians over rounds. Raises a `LayerwiseError` for options, models and texts that
    cannot be.
    """
    return perform_verb("frontier", model, text, reporter, options)


def speculate(
    model: Model | str | Path, text: Text | str | Path | None = None, *, draft: Plan | str | None = None,
    reporter: Reporter | None = None, **options: Any,
) -> Result:  # fmt: skip
    """Measure what a model gains by drafting with some of its own layers: with `draft`, or with `search=True`.

    `options` are the fields of `SpeculativeDecoding`. The rows of measure `speculation` have the speed-up in layer
    passes (`bound`), the share of drafted tokens that were kept, and the seconds of each way of decoding over those
    with the draft (`ratio`), with intervals over prompts. Raises a `LayerwiseError` for options, models and texts that
    cannot be, and `MeasureError` for a text that differs from that of plain generation.
    """
    given = {} if draft is None else {"draft": str(draft)}
    return perform_verb("speculate", model, text, reporter, {**given, **options})


def evaluate(model: Model | str | Path, *, reporter: Reporter | None = None, **options: Any) -> Result:
    """Evaluate a language model, or every model of a run, on minimal pairs and on tasks that it is fine-tuned on.

    `options` are the fields of `Evaluation`. Accuracy on pairs has chance 0.5. Raises a `LayerwiseError` for options,
    models and suites that cannot be; an opened model cannot be fine-tuned.
    """
    return perform_verb("evaluate", model, None, reporter, options)


def layer_weights(
    model: str | Path, text: Text | str | Path | None = None, *, reporter: Reporter | None = None, **options: Any
) -> Result:
    """Measure what each edge of a model's learned layer weights does, and cut those that do little.

    `model` is a run with trained models, or the folder of one. `options` are the fields of `LayerWeightAnalysis`.
    Effects are rises of the loss in nats. Raises a `LayerwiseError` for models without layer weights, and for examples
    that the model learned from.
    """
    return perform_verb("layer-weights", model, text, reporter, options)


def train_elc(text: Text | str | Path | None = None, *, reporter: Reporter | None = None, **options: Any) -> Result:
    """Pretrain ELC-BERT and its backbone on a text; `options` are the fields of `ElcPretraining`.

    The rows are held-out losses in nats per masked token, layer weights, and accuracies on minimal pairs. Raises a
    `LayerwiseError` for options and texts that cannot be.
    """
    return perform_verb("train elc", None, text, reporter, options)


def train_growth(
    model: Model | str | Path | None = None, text: Text | str | Path | None = None, *,
    reporter: Reporter | None = None, **options: Any,
) -> Result:  # fmt: skip
    """Train a model in phases, and uniformly beside it; `options` are the fields of `GrowthTraining`.

    Without a model it is a tiny one with random weights. The rows are held-out losses in nats per token, what each
    phase costs, and the difference to uniform training at equal cost. Raises a `LayerwiseError` for options, models and
    texts that cannot be.
    """
    return perform_verb("train growth", model, text, reporter, options)


def study_layer_weights(
    text: Text | str | Path | None = None, *, reporter: Reporter | None = None, **options: Any
) -> Result:
    """Compare learned layer weights with their controls; `options` are the fields of `LayerWeightsStudy`.

    The rows of measure `study` are differences between arms, paired by seed, with Student's intervals over seeds.
    Raises a `LayerwiseError` for options and texts that cannot be.
    """
    return perform_verb("study layer-weights", None, text, reporter, options)


def study_growth(
    model: Model | str | Path | None = None, text: Text | str | Path | None = None, *,
    reporter: Reporter | None = None, **options: Any,
) -> Result:  # fmt: skip
    """Compare growth schedules, their controls and uniform training; `options` are the fields of `GrowthStudy`.

    The rows of measure `growth` are differences to uniform training at equal operations, tokens and seconds. Raises a
    `LayerwiseError` for options, models and texts that cannot be.
    """
    return perform_verb("study growth", model, text, reporter, options)


def robustness(
    model: Model | str | Path, text: Text | str | Path | None = None, *, reporter: Reporter | None = None,
    **options: Any,
) -> Result:  # fmt: skip
    """Measure what a model, or every model of a run of trainings, survives; `options` are the fields of `Robustness`.

    Each model is evaluated in its own layer order, in random orders and with fewer layers: accuracy, or nats per token
    of a language model. Raises a `LayerwiseError` for options, models and data that cannot be.
    """
    return perform_verb("robustness", model, text, reporter, options)


def train_robust(
    model: Model | str | Path, text: Text | str | Path | None = None, *, methods: str | Iterable[str],
    reporter: Reporter | None = None, **options: Any,
) -> Result:  # fmt: skip
    """Train a model by each of `methods`, to work in other layer orders; `options` are the fields of `RobustTraining`.

    The models are in the run folder, `METHOD/seed-N/model`. Raises a `LayerwiseError` for methods, options, models and
    data that cannot be.
    """
    options["methods"] = split_commas(methods)
    return perform_verb("train robust", model, text, reporter, options)


def heal(
    model: Model | str | Path, text: Text | str | Path | None = None, *, plan: str, reporter: Reporter | None = None,
    **options: Any,
) -> Result:  # fmt: skip
    """Train a model under `plan` to make up for the layers that it leaves out; `options` are the fields of `Healing`.

    The rows are losses in nats per token, what was lost and the share of it that came back, net of what the whole
    model gains from the same tokens. The healed model is in the run folder, `model`. Raises a `LayerwiseError` for
    plans, options, models and data that cannot be.
    """
    return perform_verb("heal", model, text, reporter, {"plan": str(plan), **options})


def merge(
    models: str | Path | Iterable[str | Path], text: Text | str | Path | None = None, *,
    reporter: Reporter | None = None, **options: Any,
) -> Result:  # fmt: skip
    """Compare models that are merged layer by layer with those they are made of; `options` are those of `Merging`.

    `models` are folders, hub ids and runs of trainings. Raises a `LayerwiseError` for models of different bases, and
    for data that one of them may have learned from.
    """
    locations = (models,) if isinstance(models, str | Path) else models
    options["models"] = tuple(str(location) for location in locations)
    return perform_verb("merge", None, text, reporter, options)


def compare(*runs: Path | str) -> ComparisonResult:
    """Put the models of several runs side by side: all of them sweeps, or all of them diagnoses.

        layerwise.compare("runs/small", "runs/large").report("sizes.html")

    Raises `RunError` for fewer than two runs, for the same run twice, and for runs that cannot be compared.
    """
    kind = configuration("compare")
    config = configured(kind, {"runs": [str(run) for run in runs]}, "layerwise compare")
    result = ComparisonResult(config.runs)
    _ = result.compared  # what cannot be compared is refused now, and not when something is asked of the result
    return result


def perform_verb(
    verb: str,
    model: Model | str | Path | None,
    text: Text | str | Path | None,
    reporter: Reporter | None,
    options: dict[str, Any],
) -> Result:
    """Perform the experiment of a verb on opened objects, or on those that names and paths lead to."""
    from layerwise.experiments.runner import perform
    from layerwise.experiments.terminal import Terminal

    kind = experiment(verb)
    options = {name: _plain(value) for name, value in options.items()}
    stack = None if model is None or isinstance(model, str | Path) else _stack(model, options.get("tokenizer"))
    corpus = None if text is None or isinstance(text, str | Path) else _corpus(text)
    if model is not None:
        options = {"model": stack.source.name if stack is not None else str(model), **options}
    if text is not None and corpus is None:
        options = {**options, "text": Path(str(text))}
    config = configured(kind, options, f"layerwise {verb}")
    if reporter is not None:
        return perform(config, reporter, Inputs(stack, corpus))
    with Terminal() as terminal:
        return perform(config, terminal, Inputs(stack, corpus))


def _stack(model: object, tokenizer: object) -> Stack:
    """A stack as it is, or that of a module, with the tokenizer that is named or stands beside what it was loaded from.

    Raises `ModelError` for anything else.
    """
    from torch import nn

    from layerwise.data.text.tokenizer import load_tokenizer
    from layerwise.stack import Stack, load

    if isinstance(model, Stack):
        return model
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"a model is a name, a folder, what layerwise.load returns or a torch module; found {type(model).__name__}"
        )
    source = tokenizer or getattr(getattr(model, "config", None), "_name_or_path", None)
    try:
        beside = load_tokenizer(str(source)) if source else None
    except DataError:
        if tokenizer:
            raise
        beside = None
    return load(model, tokenizer=beside)


def _corpus(text: object) -> Corpus:
    """A corpus as it is, or that of a list of strings. Raises `DataError` for anything else."""
    from layerwise.data.text.corpus import Corpus

    if isinstance(text, Corpus):
        return text
    if isinstance(text, list | tuple) and all(isinstance(each, str) for each in text):
        return Corpus.of(text)
    raise DataError(f"a text is a file, a folder, a Corpus or a list of strings; found {type(text).__name__}")


def _plain(value: Any) -> Any:
    """An option as the command line has it: plans as texts, and torch's data types and devices as their names."""
    from layerwise.plan import Plan

    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Plan) or type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    return value
