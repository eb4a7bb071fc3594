"""Prepare a sweep: which plans are measured, on how much text, in batches of which size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.data.text.corpus import Corpus
from layerwise.measure.interventions.sweep import (
    CostEstimate,
    cost_estimate,
    partition_of,
    runnable,
    streaming_of,
    with_identity,
)
from layerwise.measure.language.evaluation_data import BATCH_TOKENS, WINDOW, EvalData, refuse_too_little
from layerwise.measure.stats.effects import describe_test
from layerwise.plan import Member, Plan
from layerwise.results import Manifest
from layerwise.runner.opening import cut_text, folder_of, provenance, task_digest
from layerwise.runner.plan_choice import PlanChoice
from layerwise.runner.reporter import describe_data, describe_model, describe_streaming
from layerwise.runner.text_length import ChosenText, TextRequest, TimedText, choose_text
from layerwise.stack import Stack
from layerwise.studies.sweep.batch_size import batch_tokens, recorded_batch_tokens
from layerwise.studies.sweep.tasks import add_similarity, compared_plans, describe_partition

DEFAULT_FAMILIES = ("painters", "leave_one_out", "swap_adjacent")

FEWER_FAMILIES = (("leave_one_out", "swap_adjacent"), ("leave_one_out",))
"""Families that are measured instead of the default ones if there is no time for these."""


@dataclass(frozen=True)
class PreparedSweep:
    """The plans, text and batches of a sweep.

    Args:
        options: Which plans are asked for.
        members: The plans that the model can run, with their families.
        left_out: Notes on plans that it cannot run.
        plans: The plans, the original model's first.
        chosen: The text, and the options that were chosen with it.
        batch_tokens: Number of tokens that run together.
        compared: Number of plans whose hidden states are compared.
    """

    options: PlanChoice
    members: Sequence[Member]
    left_out: Sequence[str]
    plans: Sequence[Plan]
    chosen: ChosenText
    batch_tokens: int
    compared: int

    @property
    def text(self) -> EvalData:
        """Return the text as it is scored."""
        return self.chosen.data


def prepare(
    stack: Stack,
    options: PlanChoice,
    corpus: Corpus,
    request: TextRequest,
    *,
    size: int | None,
    similarity: bool,
    seed: int,
    began: float,
) -> PreparedSweep:
    """Choose the plans, the text and the batch size; `size` is the number of tokens in a batch if it was given."""
    if size is None and not request.is_shared:
        plans = list_plans(stack, options)[2]
        used = batch_tokens(stack, plans, request.max_length or WINDOW)
    else:
        used = size or BATCH_TOKENS
    cut = partial(cut_text, stack, corpus, used, seed)

    def candidate(changes: Mapping[str, Any]) -> tuple[Mapping[str, Any], TimedText]:
        members, _, plans = list_plans(stack, with_changes(options, changes))
        compared = count_compared(stack, members) if similarity else 0

        def cost(text: EvalData) -> CostEstimate:
            return add_similarity(cost_estimate(stack, plans, text), stack, compared, text)

        return changes, TimedText(stack, cut, cost, len(plans) - 1)

    fewer = FEWER_FAMILIES if options.families == DEFAULT_FAMILIES else ()
    candidates = [candidate(changes) for changes in ({}, *({"families": list(each)} for each in fewer))]
    chosen = choose_text(request, candidates, corpus, began)
    options = with_changes(options, chosen.options)
    refuse_too_little(chosen.data)
    members, left_out, plans = list_plans(stack, options)
    compared = count_compared(stack, members) if similarity else 0
    return PreparedSweep(options, members, left_out, plans, chosen, used, compared)


def prepare_batches(stack: Stack, options: PlanChoice, batches: EvalData) -> PreparedSweep:
    """Prepare a sweep on batches of the caller's own."""
    refuse_too_little(batches)
    members, left_out, plans = list_plans(stack, options)
    return PreparedSweep(options, members, left_out, plans, ChosenText(batches, {}), BATCH_TOKENS, 0)


def resume_batch_size(
    prepared: PreparedSweep,
    stack: Stack,
    corpus: Corpus,
    manifest: Manifest,
    request: TextRequest,
    seed: int,
) -> PreparedSweep:
    """Take the batch size of a run that is resumed: it decides the last bits of losses."""
    values = request.values
    folder = Path(values["run"]) if values.get("run") else folder_of(manifest)
    recorded = recorded_batch_tokens(folder, manifest)
    if recorded in (None, prepared.batch_tokens) or values.get("overwrite"):
        return prepared
    size = int(recorded or 0)
    text = cut_text(stack, corpus, size, seed, *prepared.chosen.amount(request))
    return replace(prepared, batch_tokens=size, chosen=replace(prepared.chosen, data=text))


def with_changes(options: PlanChoice, changes: Mapping[str, Any]) -> PlanChoice:
    """Return the plans that are asked for, with the families that were chosen."""
    return replace(options, families=tuple(changes["families"])) if "families" in changes else options


def list_notes(prepared: PreparedSweep) -> list[str]:
    """Return the notes of a sweep: plans that cannot run, and what few documents cannot show."""
    few_units = describe_test(prepared.text.units, len(prepared.plans) - 1)
    return [*prepared.left_out, *([few_units] if few_units else [])]


def list_plans(stack: Stack, options: PlanChoice) -> tuple[list[Member], list[str], list[Plan]]:
    """Return the plans that the model can run, notes on the others, and all plans with the original model's first."""
    members, left_out = runnable(stack, options.list_members(stack.depth))
    return list(members), list(left_out), list(with_identity(stack, members))


def count_compared(stack: Stack, members: Sequence[Member]) -> int:
    """Return the number of passes that comparing hidden states takes."""
    return len(compared_plans(members, stack.depth)) + 1


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
    """Return the manifest of a sweep."""
    limit = (f"limit:{task_limit}",) if task_limit else ()
    shots = () if num_fewshot is None else (f"shots:{num_fewshot}",)
    settings: dict[str, object] = {"batch_tokens": prepared.batch_tokens}
    if prompt:
        settings |= {"prompts": list(prompt), "new_tokens": new_tokens}
    if tasks and task_folder is not None:
        settings["task_folder"] = task_digest(task_folder)
    return provenance(
        stack,
        prepared.text,
        families=prepared.options.describe(),
        tasks=(*tasks, *limit, *shots),
        seed=seed,
        settings=settings,
    )


def describe_work(stack: Stack, prepared: PreparedSweep, workers: int | None) -> Iterator[str]:
    """Describe the work in sentences; `workers` is the number of processes on a cluster."""
    plans, text = prepared.plans, prepared.text
    cost = cost_estimate(stack, plans, text)
    yield describe_model(stack)
    yield describe_data(text)
    yield from prepared.chosen.says
    few_units = describe_test(text.units, len(plans) - 1)
    if few_units is not None:
        yield few_units
    yield (
        f"{cost.plans} plans: {cost.naive:,} layer evaluations one by one, {cost.evaluations:,} at least; "
        f"the sweep does the least ({cost.naive / cost.evaluations:.2f} x fewer)"
    )
    streaming = streaming_of(stack, plans, text)
    if streaming is not None:
        yield describe_streaming(streaming)
    if workers is not None:
        yield describe_partition(partition_of(stack, plans, text, workers), workers)
