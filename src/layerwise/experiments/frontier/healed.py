"""Models that were pruned and healed: opened from where they lie, or healed here on the part that chooses plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from layerwise.data.text.corpus import Corpus
from layerwise.errors import OptionError
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.frontier.config import LatencyFrontier
from layerwise.experiments.healing.arms import RATES
from layerwise.experiments.healing.config import Healing
from layerwise.experiments.opening import open_model
from layerwise.experiments.options.model import LoadingOptions
from layerwise.experiments.reporter import Reporter, Silent
from layerwise.experiments.runner import perform
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.run import is_run
from layerwise.results.training_record import MODEL
from layerwise.search.latency_arms import ArmPlan, spread
from layerwise.stack import Stack
from layerwise.train.heal.options import Method

HEALED = "healed"
SIZES = 3
"""Sizes of the plans that are healed here."""

METHOD: Method = "lora"


def given_models(config: LatencyFrontier, stack: Stack) -> tuple[dict[str, Stack], dict[str, str]]:
    """The models of `--healed` by name, and for those that lie in a run the text that they were healed on.

    Raises `OptionError` for a model of another vocabulary, which the text is not cut for.
    """
    models: dict[str, Stack] = {}
    texts: dict[str, str] = {}
    for location in config.healed:
        folder = Path(location).expanduser()
        run = next((each for each in (folder, folder.parent) if is_run(each)), None)
        path = folder / MODEL if run == folder else folder
        name = f"{HEALED} {path.parent.name if path.name == MODEL else path.name}"
        if name in models:
            name = f"{HEALED} {location}"
        models[name] = opened(config, str(path), stack)
        if run is not None:
            with Run.open(run) as opened_run:
                texts[name] = opened_run.manifest.corpus
    return models, texts


def opened(config: LatencyFrontier, location: str, stack: Stack) -> Stack:
    """A healed model. Raises `OptionError` for one of another vocabulary than that of `stack`."""
    options = LoadingOptions(device=config.device)
    healed = open_model(options, model=location, dtype=config.dtype, trust_remote_code=config.trust_remote_code)
    sizes = [int(each.text_config.vocab_size) for each in (stack, healed)]
    if sizes[0] != sizes[1]:
        raise OptionError(
            f"--healed {location} has a vocabulary of {sizes[1]:,}, and {stack.source.name} one of {sizes[0]:,}: give "
            "models that were made of this one"
        )
    return healed


def plans_to_heal(kept: Sequence[ArmPlan]) -> list[Plan]:
    """Of the plans that skip layers one of each of three sizes: the first of its size."""
    by_size: dict[int, Plan] = {}
    for each in kept:
        if each.arm == "skip":
            by_size.setdefault(each.size, each.plan)
    return [by_size[size] for size in spread(sorted(by_size), SIZES)]


def healed_here(
    config: LatencyFrontier, stack: Stack, plans: Sequence[Plan], corpus: Corpus, folder: Path, reporter: Reporter
) -> Mapping[str, Path]:
    """Each of `plans` healed on `corpus` with the recipe of `layerwise heal`, in a run of its own: name to model.

    What is finished is not trained again. A model that no checkpoint can hold is left out.
    """
    models = {}
    for plan in plans:
        path = folder / HEALED / str(plan).replace(" ", "_")
        if not (path / MODEL / "config.json").is_file():
            reporter.log(f"healing {plan}: {config.heal_steps} steps")
            healing = Healing(
                model=config.model, device=config.device, plan=str(plan), method=METHOD, steps=config.heal_steps,
                seeds=1, controls=(), learning_rates=(RATES[METHOD][0],), run=path, seed=config.seed,
            )  # fmt: skip
            perform(healing, Silent(), Inputs(stack, corpus))
        if (path / MODEL / "config.json").is_file():
            models[f"{HEALED} {plan}"] = path / MODEL
    return models


def documents_of(corpus: Corpus, part: EvalData) -> Corpus:
    """The documents of which `part` reads a window, as a corpus of their own."""
    read = {window.document for window in part.windows}
    kept = tuple(document for document in corpus.documents if document.id in read)
    return Corpus(f"{corpus.name}, the part that chooses", kept)
