"""The steps of `layerwise save`: choose the models of a plan, write the result, and publish it with a model card."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from layerwise.bounded import named, read_json
from layerwise.checkpoint import push as hub
from layerwise.checkpoint.card import CardTable, card_path, write_card
from layerwise.checkpoint.folder import Origin, Writing
from layerwise.checkpoint.gguf_file import TO_GGUF, save_gguf
from layerwise.checkpoint.layer_names import UnresolvedNamesError
from layerwise.checkpoint.save import save_named
from layerwise.checkpoint.stored_model import StoredModel
from layerwise.data.model_location import is_gguf
from layerwise.errors import ModelError, OptionError, RunError
from layerwise.plan import Plan
from layerwise.plan.checks import quantized_layers
from layerwise.plan.dialects.mergekit import split_revision
from layerwise.results import Manifest, Run, Score
from layerwise.results.manifest import model_name
from layerwise.results.run import MANIFEST
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import ABOVE_CHOSEN, AGAIN, BETTER, DELTA, EFFECT, GAP, SEARCH
from layerwise.runner.arguments import Dtype
from layerwise.runner.foreign_plans import add_models, read_recipe
from layerwise.runner.plan_choice import resolve_plan
from layerwise.runner.reporter import Reporter
from layerwise.runner.trained_models import format_command, push_folder

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

    from layerwise.stack import Stack


@dataclass(frozen=True)
class PlannedModels:
    """A plan and its models by name; `head` names the model that provides the final norm and the head."""

    plan: Plan
    names: Mapping[str, str]
    head: str | None = None
    dtype: Dtype = "auto"
    revision: str | None = None


def choose_models(
    models: Sequence[str], plan: str, variant: str | None, dtype: Dtype, revision: str | None, reporter: Reporter
) -> PlannedModels:
    for location in models:
        reporter.log(f"loading {location}")
    names = _merge_runs(models, variant, reporter) if takes_several(models) else _check_single(models[0])
    return PlannedModels(resolve_plan(plan), names, None, dtype, revision)


def takes_several(models: Sequence[str]) -> bool:
    """Return True for several models, and for a run directory, which may have several models."""
    return len(models) > 1 or any((Path(location).expanduser() / MANIFEST).is_file() for location in models)


def write_folder(
    planned: PlannedModels, writing: Writing, opened: Callable[[Mapping[str, str]], Stack], in_memory: str
) -> Origin:
    names = planned.names
    if len(names) == 1 and not planned.plan.sources():
        # Without names, errors refer to a single model.
        names = {"": next(iter(names.values()))}
    return save_named(names, planned.plan, writing, partial(opened, names), planned.revision, in_memory)


def write_gguf(planned: PlannedModels, output: Path, *, overwrite: bool, prove: bool) -> tuple[Origin, str]:
    """Write a GGUF file from another one, with layers of model folders. Returns its origin and a summary."""
    (_, file), *folders = planned.names.items()
    if not is_gguf(file) or any(is_gguf(folder) for _, folder in folders):
        locations = " and ".join(map(named, planned.names.values()))
        raise OptionError(f"a GGUF output requires exactly one GGUF model, got {locations}. {TO_GGUF}")
    plan = planned.plan
    origin = save_gguf(file, plan, output, folders=dict(folders), overwrite=overwrite, prove=prove)
    count = len(quantized_layers(plan)) + sum(step.source in dict(folders) for step in plan.steps())
    copied = (
        f"the matrices of {count} of its layers were quantized again; all other tensors are copied from {file}"
        if count
        else f"its tensors are copied from {file} without quantizing them again"
    )
    return origin, f"{_summarize(output, plan, origin)}\n{copied}\n{_describe_proof(origin)}"


def _check_single(location: str) -> dict[str, str]:
    record = TrainingRecord.read(Path(location).expanduser())
    if record is not None:
        from layerwise.runner.source_models import SourceModel, refuse_added

        refuse_added([SourceModel("", location, record)])
    return {"": location}


def _merge_runs(models: Sequence[str], variant: str | None, reporter: Reporter) -> dict[str, str]:
    from layerwise.runner.source_models import read_variants, refuse_added

    variants = read_variants(models, variant, reporter)
    if len(variants) > 1:
        raise ModelError(
            f"the models must be of the same training variant, got {len(variants)} variants. Pass --variant "
            f"{' or --variant '.join(variants)}."
        )
    (sources,) = variants.values()
    refuse_added(sources.values())
    return {name: source.location for name, source in sources.items()}


def open_stacks(names: Mapping[str, str], reporter: Reporter, *, dtype: Dtype, **options: Any) -> Stack:
    """Load the models. If the dtype is `auto`, each model keeps the dtype of its file."""
    from layerwise.runner.opening import open_stack
    from layerwise.stack import Stack

    stored: Dtype = "stored" if dtype == "auto" else dtype
    stacks = {name: open_stack(location, reporter, dtype=stored, **options) for name, location in names.items()}
    return stacks[""] if list(stacks) == [""] else Stack.with_sources(stacks)


def _summarize(path: Path, plan: Plan, origin: Origin) -> str:
    visits, repeats = len(plan.steps()), len(plan.steps()) - plan.cost().weights
    copied = f"; {repeats} of its layers {'is a copy' if repeats == 1 else 'are copies'}" if repeats else ""
    tokenizer = ", with its tokenizer" if any(path.glob("tokenizer*")) else ""
    layers = f"{visits - repeats} layers for {visits} layer evaluations" if origin.compact else f"{visits} layers"
    return f"{path}: {layers}, {origin.parameters:,} parameters{'' if origin.compact else copied}{tokenizer}"


def describe_folder(folder: Path, plan: Plan, origin: Origin) -> list[str]:
    sentences = [_summarize(folder, plan, origin)]
    if origin.note:
        sentences.append(f"the model was built in memory: {origin.note}")
    if origin.unwritten:
        sentences.append(f"not written, and removed from config.json: {origin.unwritten}")
    sentences.append(_describe_proof(origin))
    if origin.compact:
        sentences.append("transformers without trust_remote_code runs the stored layers in order, not the plan")
    lines = _list_loading_code(folder, origin)
    return [*sentences, *(["to load it:", *(f"    {line}" for line in lines)] if lines else [])]


def _describe_proof(origin: Origin) -> str:
    if origin.proof == "keys":
        return "keys and shapes match transformers; logits were not compared (pass --prove)"
    if origin.proof == "none" or origin.gap is None:
        return "logits were not compared with those of the plan (pass --prove)"
    gap = (
        "identical logits" if origin.gap == 0 else f"logits equal up to rounding (relative difference {origin.gap:.2g})"
    )
    library = "layerwise" if origin.compact or not origin.weights else "plain transformers"
    return f"loaded again with {library}: {gap}"


def _list_loading_code(folder: Path, origin: Origin) -> list[str]:
    settings = read_json(folder / "config.json")
    kind = next(iter(settings.get("architectures") or ()), None)
    code = settings.get("auto_map") or {}
    name = next((name for name, each in sorted(code.items(), reverse=True) if each.endswith(f".{kind}")), None)
    if name is not None:
        return [
            f"from transformers import {name}",
            f"model = {name}.from_pretrained({str(folder)!r}, trust_remote_code=True)",
        ]
    if origin.compact:
        return ["import layerwise", f"model = layerwise.load({str(folder)!r}).model"]
    if kind is None:
        return []
    home = "layerwise.models" if str(settings.get("model_type")).startswith("layerwise-") else "transformers"
    return [f"from {home} import {kind}", f"model = {kind}.from_pretrained({str(folder)!r})"]


STORED = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""Names of the dtypes in safetensors headers."""


def read_planned(
    given: str, models: Sequence[str], *, dtype: Dtype, revision: str | None, reporter: Reporter
) -> PlannedModels:
    """Return the plan of the recipe `given`, with the models that it names. If it names none, `models` are used.

    If all models are stored in the requested dtype, the dtype is `auto`.
    """
    recipe = read_recipe(given)
    if not (recipe.models or models):
        raise OptionError(f"a model is required. Run layerwise save MODEL --from {named(given)} --output FOLDER.")
    recipe = add_models(recipe, models)
    for note in recipe.notes:
        reporter.log(f"note: {note}")
    split = {name or "": split_revision(location) for name, location in recipe.models.items()}
    names = {name: location for name, (location, _) in split.items()}
    revisions = {stated for _, stated in split.values() if stated is not None}
    if revisions and (len(split) > 1 or revision is not None):
        raise OptionError(
            "a revision can be given only once, and only if there is one model. Download the models, and pass their "
            "folders."
        )
    if recipe.dtype is not None and dtype != "auto" and dtype != recipe.dtype:
        raise OptionError(f"--dtype must be {recipe.dtype}, as in {named(given)}, got {dtype}. Remove one of them.")
    requested = next((each for each in get_args(Dtype) if each == recipe.dtype), dtype)
    revision = next(iter(revisions), revision)
    stored = "auto" if _is_stored_as(names, requested, revision) else requested
    return PlannedModels(recipe.plan, names, recipe.head, stored, revision)


def _is_stored_as(names: Mapping[str, str], dtype: str, revision: str | None) -> bool:
    if any(map(is_gguf, names.values())):
        return True  # not converted
    if dtype not in STORED:
        return False
    try:
        models = [StoredModel.open(location, revision) for location in names.values()]
    except UnresolvedNamesError:
        return False
    return {tensor.dtype for model in models for tensor in model.tensors.values()} == {STORED[dtype]}


MAX_CONTROLS = 20
"""Maximum number of other plans of a sweep in a model card: those of the same size with the smallest effects."""

COLUMNS = ("plan", "text", "quantity", "value", "95% interval", "adjusted p")
QUANTITIES = {
    DELTA: "nats/token above the original model",
    AGAIN: "the same, with the prediction interval for another text",
    GAP: "nats/token above the loss on the search text",
    ABOVE_CHOSEN: "nats/token above this model",
    BETTER: "share of random plans with a lower loss",
}
"""Metrics in a model card, with their names. Other metrics are in the report of the run."""

NOT_HELD_OUT = "These values are not from held-out text, so a plan that was selected by them looks better than it is."


@dataclass(frozen=True, slots=True)
class Publication:
    """The tables of a model card, and the hub repository to push to, if any."""

    tables: tuple[CardTable, ...] = ()
    repository: str | None = None
    private: bool = False
    overwrite: bool = False

    @classmethod
    def prepare(
        cls, runs: Sequence[str], plan: Plan, models: Iterable[str], *, push: str | None, private: bool, overwrite: bool
    ) -> Publication:
        """Collect the results of the plan from `runs` for the model card, and check the repository."""
        locations = tuple(models)
        tables = tuple(collect_evidence(Path(run), plan, locations) for run in runs)
        if push is not None:
            hub.check_push(push, overwrite=overwrite)
        return cls(tables, push, private, overwrite)

    def publish(self, folder: Path, reporter: Reporter, origin: Origin | None = None) -> None:
        """Write the card of the model (a folder or a GGUF file), and push both if there is a repository."""
        name = card_path(folder.resolve()).stem if is_gguf(folder) else folder.resolve().name
        name = name if self.repository is None else self.repository.partition("/")[2]
        write_card(folder, name=name, command=format_command(), tables=self.tables, origin=origin)
        reporter.result(f"{card_path(folder)}: model card")
        if self.repository is not None:
            push_folder(folder, self.repository, self.private, self.overwrite, reporter)


def collect_evidence(folder: Path, plan: Plan, models: Sequence[str]) -> CardTable:
    """Return a table with the results of `plan` and its controls from the search or sweep in `folder`."""
    with Run.open(folder) as run:
        manifest, scores = run.manifest, run.store.scores()
    if _resolve(manifest.model) not in map(_resolve, models):
        raise RunError(
            f"the run {folder} must be of the saved model, {', '.join(models)}, got {manifest.model}. Pass another run."
        )
    measures = {score.measure for score in scores}
    rows = [score for score in scores if score.measure == (SEARCH if SEARCH in measures else EFFECT)]
    results = [score for score in rows if score.plan == str(plan) and score.metric in QUANTITIES]
    if not results:
        measured = sorted({str(score.plan) for score in rows if score.metric == DELTA})[:3]
        raise RunError(
            f"the run {folder} did not measure the plan {plan} (it measured {', '.join(measured) or 'none'}). Pass a "
            "search or sweep of this plan."
        )
    warning = () if SEARCH in measures else (NOT_HELD_OUT,)
    return CardTable(
        f"Measured by layerwise {manifest.experiment.get('experiment', 'sweep')}",
        (
            f"Model: {model_name(manifest.model)}. Text: {manifest.corpus}, {manifest.documents:,} documents of "
            f"{manifest.tokens:,} scored tokens; seed {manifest.seed}; {manifest.dtype} on {manifest.device}. "
            "Differences are paired by document.",
            *warning,
        ),
        COLUMNS,
        tuple(_format_line(score, plan) for score in (*results, *_list_controls(rows, plan))),
        tuple(_to_eval_result(score, manifest) for score in results),
    )


def _resolve(model: str) -> str:
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


def _list_controls(rows: Sequence[Score], plan: Plan) -> Iterator[Score]:
    others = [score for score in rows if score.plan != str(plan)]
    if others and others[0].measure == SEARCH:
        yield from (score for score in others if score.metric in (ABOVE_CHOSEN, BETTER))
        return
    same = [
        score
        for score in others
        if (score.metric, score.task) == (DELTA, "all") and Plan.parse(str(score.plan)).evaluations == plan.evaluations
    ]
    yield from sorted(same, key=lambda score: score.value)[:MAX_CONTROLS]


def _format_line(score: Score, plan: Plan) -> tuple[str, ...]:
    p = score.p if score.p_adjusted is None else score.p_adjusted
    return (
        "this plan" if score.plan == str(plan) else f"`{score.plan or score.variant}`",
        score.task,
        QUANTITIES[score.metric],
        f"{score.value:.4f}",
        "" if score.low is None or score.high is None else f"{score.low:.4f} to {score.high:.4f}",
        "" if p is None else f"{p:.2g}",
    )


def _to_eval_result(score: Score, manifest: Manifest) -> EvalResult:
    from huggingface_hub import EvalResult

    bounds = None if score.low is None or score.high is None else [score.low, score.high]
    p = score.p if score.p_adjusted is None else score.p_adjusted
    return EvalResult(
        task_type="text-generation",
        dataset_type=manifest.corpus,
        dataset_name=f"{manifest.corpus}, {score.task}",
        metric_type=score.metric,
        metric_name=QUANTITIES[score.metric],
        metric_value=score.value,
        metric_args={"confidence_interval_95": bounds, "adjusted_p": p, "documents": score.documents},
    )
