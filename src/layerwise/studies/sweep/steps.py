"""Prepare a sweep: choose the plans, the amount of text and the batch size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.data.text.corpus import Corpus
from layerwise.errors import RunError
from layerwise.measure.interventions.sweep import (
    CostEstimate,
    add_identity,
    count_shards,
    estimate_cost,
    estimate_streaming,
    filter_runnable,
)
from layerwise.measure.language.evaluation_data import BATCH_TOKENS, WINDOW, EvalData, refuse_too_little, tokenize
from layerwise.measure.language.loss import CHUNK
from layerwise.measure.stats.effects import describe_test
from layerwise.page.formatting import format_count
from layerwise.plan import Member, Plan
from layerwise.results import Manifest
from layerwise.results.run import MANIFEST, is_run
from layerwise.runner.opening import default_folder, hash_tasks, make_text_manifest
from layerwise.runner.plan_choice import PlanChoice
from layerwise.runner.reporter import describe_data, describe_model, describe_streaming
from layerwise.runner.text_length import ChosenText, TextRequest, TimedText, choose_text
from layerwise.stack import Stack
from layerwise.stack.placement import batch_size_within, free_memory
from layerwise.studies.sweep.tasks import add_similarity, select_compared_plans
from layerwise.studies.sweep.verb import DEFAULT_FAMILIES

FEWER_FAMILIES = (("leave_one_out", "swap_adjacent"), ("leave_one_out",))
"""Families that replace the default families if there is not enough time for those."""

ACCELERATOR_TOKENS = 65_536
"""Maximum number of tokens in a batch on an accelerator."""

LAYER_WIDTHS, LOGIT_BYTES = 16, 12
"""Memory of a layer per token, as a number of hidden states, and memory of the loss in bytes per logit."""


@dataclass(frozen=True)
class PreparedSweep:
    """The plans, text and batches of a sweep.

    Args:
        options: Plans that were requested.
        members: Plans that the model can run, with their families.
        unsupported: Notes on plans that the model cannot run.
        plans: Plans to run, starting with the identity plan.
        chosen: Text, and the options that were chosen with it.
        batch_tokens: Number of tokens in a batch.
        compared: Number of forward passes for comparing hidden states.
    """

    options: PlanChoice
    members: Sequence[Member]
    unsupported: Sequence[str]
    plans: Sequence[Plan]
    chosen: ChosenText
    batch_tokens: int
    compared: int

    @property
    def text(self) -> EvalData:
        return self.chosen.data

    @property
    def notes(self) -> list[str]:
        few_units = describe_test(self.text.units, len(self.plans) - 1)
        return [*self.unsupported, *([few_units] if few_units else [])]


def prepare(
    stack: Stack,
    options: PlanChoice,
    corpus: Corpus,
    request: TextRequest,
    *,
    size: int | None,
    similarity: bool,
    seed: int,
) -> PreparedSweep:
    """Choose the plans, the text and the batch size. `size` is the number of tokens in a batch, if it was given."""
    if size is None:
        plans = list_plans(stack, options)[2]
        size = BATCH_TOKENS if request.is_shared else choose_batch_tokens(stack, plans, request.max_length or WINDOW)
    cut = partial(tokenize, stack, corpus, batch_tokens=size, seed=seed)
    choices = [options]
    if options.families == DEFAULT_FAMILIES:
        choices += [replace(options, families=families) for families in FEWER_FAMILIES]
    candidates: list[tuple[Mapping[str, Any], TimedText]] = []
    for choice in choices:
        members, _, plans = list_plans(stack, choice)
        cost = partial(_estimate_cost, stack, plans, _count_compared(stack, members) if similarity else 0)
        changes = {} if choice is options else {"families": list(choice.families)}
        candidates.append((changes, TimedText(stack, cut, cost, len(plans) - 1)))
    chosen = choose_text(request, candidates, corpus)
    refuse_too_little(chosen.data)
    if "families" in chosen.options:
        options = replace(options, families=tuple(chosen.options["families"]))
    members, unsupported, plans = list_plans(stack, options)
    compared = _count_compared(stack, members) if similarity else 0
    return PreparedSweep(options, members, unsupported, plans, chosen, size, compared)


def prepare_batches(stack: Stack, options: PlanChoice, batches: EvalData) -> PreparedSweep:
    refuse_too_little(batches)
    return PreparedSweep(options, *list_plans(stack, options), ChosenText(batches, {}), BATCH_TOKENS, 0)


def resume_batch_size(
    prepared: PreparedSweep,
    stack: Stack,
    corpus: Corpus,
    manifest: Manifest,
    request: TextRequest,
    seed: int,
) -> PreparedSweep:
    """Use the batch size of the run that is resumed, because it affects the last bits of losses."""
    values = request.values
    folder = Path(values["run"]) if values.get("run") else default_folder(manifest)
    recorded = _read_batch_tokens(folder, manifest)
    if recorded in (None, prepared.batch_tokens) or values.get("overwrite"):
        return prepared
    text = tokenize(stack, corpus, *prepared.chosen.amount(request), batch_tokens=recorded, seed=seed)
    return replace(prepared, batch_tokens=recorded, chosen=replace(prepared.chosen, data=text))


def _read_batch_tokens(folder: Path, manifest: Manifest) -> int | None:
    if not is_run(folder):
        return None
    try:
        recorded = Manifest.from_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RunError):
        return None  # resuming reports the error
    number = recorded.numerics.get("batch_tokens", "")
    return int(number) if recorded.measured() == manifest.measured() and number.isdigit() else None


def choose_batch_tokens(stack: Stack, plans: Sequence[Plan], length: int) -> int:
    most = BATCH_TOKENS if stack.device.type == "cpu" else ACCELERATOR_TOKENS
    each = estimate_bytes_per_token(stack, plans, length)
    return batch_size_within(free_memory(stack.device), each, most=most, fixed=LOGIT_BYTES * CHUNK)


def estimate_bytes_per_token(stack: Stack, plans: Sequence[Plan], length: int) -> float:
    """Estimate the memory of a sweep per token, in bytes.

    The graph of all plans is traversed depth first, so there is one hidden state for each step of the longest plan.
    A layer also needs several states, the inner state of its MLP, and a row of the attention matrix of every head.
    """
    config = stack.text_config
    width = int(config.hidden_size)
    inner = getattr(config, "intermediate_size", None) or 4 * width
    heads = getattr(config, "num_attention_heads", None) or 1
    states = max(len(plan.steps()) for plan in plans) + 1
    numbers = width * (states + LAYER_WIDTHS) + 4 * int(inner) + 2 * int(heads) * length
    return float(numbers * stack.dtype.itemsize)


def list_plans(stack: Stack, options: PlanChoice) -> tuple[list[Member], list[str], list[Plan]]:
    """Return the members that the model can run, notes on the others, and the plans.

    Members are plans with their families. The first plan is the identity plan.
    """
    members, unsupported = filter_runnable(stack, options.list_members(stack.depth))
    return list(members), list(unsupported), list(add_identity(stack, members))


def _count_compared(stack: Stack, members: Sequence[Member]) -> int:
    return len(select_compared_plans(members, stack.depth)) + 1


def _estimate_cost(stack: Stack, plans: Sequence[Plan], compared: int, text: EvalData) -> CostEstimate:
    return add_similarity(estimate_cost(stack, plans, text), stack, compared, text)


def describe_run(
    stack: Stack,
    prepared: PreparedSweep,
    *,
    prompt: Sequence[str],
    new_tokens: int,
    tasks: Sequence[str],
    task_folder: Path | None,
    task_limit: int | None,
    num_fewshot: int | None,
    seed: int,
) -> Manifest:
    limit = (f"limit:{task_limit}",) if task_limit else ()
    shots = () if num_fewshot is None else (f"shots:{num_fewshot}",)
    settings: dict[str, object] = {"batch_tokens": prepared.batch_tokens}
    if prompt:
        settings |= {"prompts": list(prompt), "new_tokens": new_tokens}
    if tasks and task_folder is not None:
        settings["task_folder"] = hash_tasks(task_folder)
    return make_text_manifest(
        stack,
        prepared.text,
        families=prepared.options.describe(),
        tasks=(*tasks, *limit, *shots),
        seed=seed,
        settings=settings,
    )


def describe_work(stack: Stack, prepared: PreparedSweep, workers: int | None) -> Iterator[str]:
    plans, text = prepared.plans, prepared.text
    cost = estimate_cost(stack, plans, text)
    yield describe_model(stack)
    yield describe_data(text)
    yield from prepared.chosen.says
    few_units = describe_test(text.units, len(plans) - 1)
    if few_units is not None:
        yield few_units
    yield (
        f"{cost.plans} plans: {cost.evaluations:,} layer evaluations ({cost.naive:,} without prefix sharing, "
        f"{cost.naive / cost.evaluations:.2f}x as many)"
    )
    if stack.resident is not None:
        yield describe_streaming(estimate_streaming(stack, stack.resident, plans, text))
    if workers is not None:
        shards = format_count(count_shards(plans, text, workers), "shard")
        yield f"{format_count(workers, 'worker')}: {shards} of text windows and plans"
