"""`layerwise search`: find the plan that fits a budget and increases the loss least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from layerwise.errors import OptionError
from layerwise.runner.arguments import (
    REQUIRED,
    BudgetLike,
    Count,
    Device,
    Dtype,
    Location,
    Metavar,
    ModelLike,
    Names,
    PathLike,
    Range,
    Rare,
    Seed,
    TextLike,
    Trait,
    to_path,
)
from layerwise.runner.reporter import Reporter, Silent
from layerwise.runner.result import SearchResult
from layerwise.runner.verb import spell, verb
from layerwise.search.budget import Budget
from layerwise.search.edits import BITS, CHEAPER_EDITS, EDITS_WITH_BITS, Edit, check_edits
from layerwise.studies.search.settings import WIDTH, Method, SearchSettings

CONTEXT = 256


@verb(
    "search",
    group="Changing",
    examples=(
        "demo --budget layers=9",
        "./my-model --text texts/ --budget ms=0.75x --phase decode",
        "./first --source ./second --text texts/ --budget layers=1x",
        "model.gguf --text texts/ --budget bytes=0.8x --edits bits,drop",
        "org/name --text texts/ --budget layers=2x --edits repeat,damp",
    ),
)
def search(
    model: ModelLike,
    text: TextLike = None,
    budget: BudgetLike = REQUIRED,
    *,
    edits: Names = ("drop",),
    method: Method = "auto",
    minutes: Annotated[float | None, Range(least=1, most=10_000)] = None,
    tokens: Annotated[int | Literal["all"] | None, Range(least=1)] = None,
    source: Rare[Annotated[Sequence[str], Trait.REPEATED, Metavar("MODEL")]] = (),
    width: Rare[Annotated[int, Range(least=1, most=64)]] = WIDTH,
    second_text: Rare[PathLike] = None,
    latency: Rare[bool] = False,
    phase: Rare[Literal["prefill", "decode"]] = "prefill",
    batch: Rare[Count] = 1,
    context: Rare[Count] = CONTEXT,
    max_length: Rare[Annotated[int | None, Range(least=2)]] = None,
    batch_tokens: Rare[Count | None] = None,
    device: Rare[Device] = "auto",
    dtype: Rare[Dtype] = "auto",
    tokenizer: Rare[Location] = None,
    layers: Rare[str | None] = None,
    revision: Rare[str | None] = None,
    trust_remote_code: Rare[bool] = False,
    run: PathLike = None,
    overwrite: bool = False,
    seed: Seed = 0,
    reporter: Reporter | None = None,
) -> SearchResult:
    """Find the plan that fits a budget and increases the loss least.

    The selected plan is re-evaluated on held-out text. To resume an interrupted run, run the same command again. To use
    the selected plan, pass the run as --plan to `layerwise heal` or `layerwise save`.

    Args:
        model: Hub id, folder, GGUF file, or demo.
        text: Text file, a folder of them, or hf:DATASET.
        budget: Maximum cost of a plan: "layers=24", "ms=0.75x" or "bytes=0.8x".
        edits: Edits to try: drop, sublayers, repeat, damp, parallel, reorder, bits.
        method: Search algorithm (auto: greedy, or one-shot if greedy takes too long).
        minutes: Time budget in minutes (default: 10).
        tokens: Number of tokens to score, or all (default: what fits the time budget).
        source: Another model of the same architecture whose layers may be used; repeat for more.
        width: Number of plans kept at each step.
        second_text: Second corpus for the final evaluation.
        latency: Measure latency even if the budget is not in ms.
        phase: Phase to time.
        batch: Number of prompts in a batch.
        context: Number of tokens of each prompt.
        max_length: Maximum length of a text in tokens.
        batch_tokens: Number of tokens in a batch.
        device: Device: auto, cpu, cuda, mps or xpu.
        dtype: Weight dtype. `auto` uses the checkpoint's dtype (float32 on CPU).
        tokenizer: Tokenizer, if the model does not include one.
        layers: Path of the layers, such as model.layers.
        revision: Branch, tag or commit of a hub model.
        trust_remote_code: Run code that comes with the model.
        run: Run directory (default: derived from options).
        overwrite: Discard the results of an earlier run.
        seed: Random seed.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The selected plan, the Pareto front of loss and cost, and the confirmation on held-out text.

    Raises:
        OptionError: If options cannot be combined, or if the original model already fits the budget.
        DataError: If there is too little text.

    Example:
        >>> found = layerwise.search("demo", budget="layers=10")  # doctest: +SKIP
        >>> found.plan  # doctest: +SKIP
    """
    if minutes is not None and tokens is not None:
        raise OptionError(f"{spell('minutes')} and {spell('tokens')} cannot be combined. Pass one of them.")
    limit, allowed = Budget.parse(budget), check_edits(edits)
    _check_edits(limit, allowed, has_sources=bool(source))
    _check_method(method, allowed, has_sources=bool(source), has_width=width != WIDTH)
    is_timed = latency or limit.unit == "ms"
    for name, is_given in (("phase", phase != "prefill"), ("batch", batch != 1), ("context", context != CONTEXT)):
        if is_given and not is_timed:
            raise OptionError(f"{spell(name)} requires {spell('latency')} or {spell('budget')} ms=NUMBER.")

    import torch

    from layerwise.measure.cost.pass_time import Setting
    from layerwise.runner.opening import make_size_row, open_corpus, open_stack
    from layerwise.runner.study import RunDescription, start_run
    from layerwise.stack.rounding import has_bfloat16
    from layerwise.studies.search import steps

    reporter = reporter or Silent()
    corpus = open_corpus(text, str(model))
    stack = open_stack(
        model,
        reporter,
        device=device,
        dtype=dtype,
        tokenizer=tokenizer,
        layers=layers,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    stack = steps.add_sources(stack, source, reporter, tokenizer=tokenizer, layers=layers, revision=revision)
    requested = SearchSettings(budget=limit, edits=allowed, method=method, width=width, seed=seed, is_timed=is_timed)
    prepared = steps.prepare(
        stack,
        requested,
        text,
        corpus,
        to_path(second_text),
        reporter,
        setting=Setting(phase, batch, context),
        size=batch_tokens,
        compares_in_bfloat16=dtype == "auto" and stack.dtype == torch.float32 and has_bfloat16(stack.device),
    )
    described = RunDescription(
        manifest=steps.describe_run(prepared, batch_tokens),
        lines=steps.describe_work(prepared),
        tasks=[steps.expected_work(prepared)],
        chosen=prepared.chosen.options,
    )
    with start_run(described) as study:
        table = study.execute(steps.time_layers(prepared)) if is_timed else []
        outcome = steps.find_plans(prepared, study, table, reporter)
        selected, selection = steps.select_plan(prepared, study, outcome, reporter)
        confirmed = steps.confirm_plans(prepared, study, outcome, selected, reporter)
        times = steps.check_times(prepared, outcome, selected, reporter) if is_timed else []
        costs = study.execute(steps.keep_costs(outcome))
        plans = [
            *steps.search_rows(prepared, outcome),
            *selection,
            *confirmed,
            *steps.describe_plans(prepared, outcome, selected),
        ]
        # The selected plan is written last: a run that has it is complete.
        study.write(
            [*steps.round_rows(outcome.steps), *table, *times, make_size_row(stack), *costs, *plans],
            steps.continue_text(prepared, selected),
        )
    return SearchResult(study.folder)


def _check_edits(budget: Budget, edits: Sequence[Edit], *, has_sources: bool) -> None:
    name = spell("edits")
    if BITS not in edits:
        if not set(edits) & set(CHEAPER_EDITS) and not budget.fits_original:
            raise OptionError(
                f"{name} must include one that makes a plan cheaper ({', '.join((*CHEAPER_EDITS, BITS))}), got "
                f"{', '.join(edits)}. Add one, or pass a budget above the original model, such as layers=2x."
            )
        return
    if budget.unit != "bytes":
        raise OptionError(
            f"{name} bits requires a {spell('budget')} of bytes, got {budget}. Pass, for example, bytes=0.7x."
        )
    if others := [edit for edit in edits if edit not in (BITS, *EDITS_WITH_BITS)]:
        raise OptionError(
            f"{name} bits can only be combined with {', '.join(EDITS_WITH_BITS)}, got {', '.join(others)}. Remove it."
        )
    if has_sources:
        raise OptionError(f"{name} bits and {spell('source')} cannot be combined. Pass one of them.")


def _check_method(method: Method, edits: Sequence[Edit], *, has_sources: bool, has_width: bool) -> None:
    name = spell("method")
    if method == "evolve" and not set(edits) <= set(CHEAPER_EDITS):
        raise OptionError(f"{name} evolve requires {spell('edits')} drop,sublayers. Pass them, or {name} greedy.")
    if method == "one-shot" and tuple(edits) != ("drop",):
        raise OptionError(f"{name} one-shot requires {spell('edits')} drop. Pass it, or {name} greedy.")
    if method == "one-shot" and has_sources:
        raise OptionError(f"{spell('source')} requires {name} auto, greedy or evolve, got one-shot. Pass one of them.")
    if method in ("evolve", "one-shot") and has_width:
        raise OptionError(f"{spell('width')} requires {name} auto or greedy, got {method}. Pass one of them.")
