"""`layerwise diagnose`: which layers of a model matter, and what explains it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from layerwise.errors import MeasureError, OptionError, RunError
from layerwise.plan.schedule.allocation import MIN_EFFECT
from layerwise.results.run import is_run
from layerwise.runner.arguments import (
    Batches,
    Count,
    Device,
    DeviceMap,
    Dtype,
    Location,
    Metavar,
    ModelLike,
    Names,
    PathLike,
    Range,
    Rare,
    RowMetric,
    Seed,
    TextLike,
)
from layerwise.runner.reporter import Reporter, Silent, report_waiting
from layerwise.runner.result import Result
from layerwise.runner.verb import spell, verb
from layerwise.studies.diagnose.part_names import (
    CURVE_PARTS,
    CURVE_TOKENS,
    DEFAULT_PARTS,
    RECOVERY_STEPS,
    WITHOUT_TEXT,
    sort_parts,
)


@verb(
    "diagnose",
    group="Measuring",
    examples=(
        "demo",
        "HuggingFaceTB/SmolLM2-135M --text book.txt",
        "./my-model --text texts/ --parts racing --minutes 5",
    ),
)
def diagnose(
    model: ModelLike,
    text: TextLike = None,
    *,
    parts: Names = DEFAULT_PARTS,
    minutes: Annotated[float | None, Range(least=1, most=10_000)] = None,
    tokens: Annotated[int | Literal["all"] | None, Range(least=1)] = None,
    min_effect: Rare[Annotated[float, Range(above=0)]] = MIN_EFFECT,
    curve_tokens: Rare[Count] = CURVE_TOKENS,
    all_layers: Rare[bool] = False,
    recovery_steps: Rare[Annotated[int, Range(least=1, most=100_000)]] = RECOVERY_STEPS,
    recovery_layers: Rare[Annotated[Sequence[int], Range(least=0), Metavar("NUMBERS")]] = (),
    batches: Batches = None,
    metric: RowMetric = None,
    max_length: Rare[Annotated[int | None, Range(least=2)]] = None,
    batch_tokens: Rare[Annotated[int | None, Range(least=1)]] = None,
    device: Rare[Device] = "auto",
    dtype: Rare[Dtype] = "auto",
    device_map: Rare[DeviceMap | None] = None,
    resident_layers: Rare[Annotated[int | None, Range(least=1)]] = None,
    tokenizer: Rare[Location] = None,
    layers: Rare[str | None] = None,
    revision: Rare[str | None] = None,
    trust_remote_code: Rare[bool] = False,
    run: PathLike = None,
    overwrite: bool = False,
    seed: Seed = 0,
    reporter: Reporter | None = None,
) -> Result:
    """Measure which layers of a model matter, and why.

    Every score has an interval and a null (a baseline). The report also tests published findings. To resume an
    interrupted run, run the same command again. To make a growth schedule from the results, see `layerwise train
    schedule`.

    Args:
        model: Hub id, folder, GGUF file, or demo.
        text: Text file, a folder of them, or hf:DATASET.
        parts: Parts to run: proxies (cheap scores), deltas (weight differences), predictability (of weights),
            ablation (skip or replace layers), racing (stop early), manipulation (change weights), recovery (after
            damage), redundancy (sets of layers), probing (features in states) (default: all but probing).
        minutes: Time budget in minutes (default: 10).
        tokens: Number of tokens to score, or all (default: what fits the time budget).
        min_effect: Smallest effect that counts, in nats/token.
        curve_tokens: Number of tokens to score for curves over the size of a change, and for sets of layers.
        all_layers: Retrain every layer in the recovery part, alone and with all others.
        recovery_steps: Maximum number of recovery steps (paper: 200).
        recovery_layers: Layers to retrain in the recovery part (default: up to 12, evenly spaced).
        batches: Batches to evaluate in place of a text.
        metric: Function of the outputs and a batch that returns a number per row; lower is better.
        max_length: Maximum length of a text in tokens.
        batch_tokens: Number of tokens in a batch.
        device: Device: auto, cpu, cuda, mps or xpu.
        dtype: Weight dtype. `auto` uses the checkpoint's dtype (float32 on CPU).
        device_map: Distribute the model over devices with accelerate.
        resident_layers: Maximum number of layers in memory; the others are read from disk when needed.
        tokenizer: Tokenizer, if the model does not include one.
        layers: Path of the layers, such as model.layers.
        revision: Branch, tag or commit of a hub model.
        trust_remote_code: Run code that comes with the model.
        run: Run directory (default: derived from options).
        overwrite: Discard the results of an earlier run.
        seed: Random seed.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The rows of every part, by layer.

    Raises:
        OptionError: If options cannot be combined, or if the minutes are too few.
        MeasureError: If the model has fewer than 4 layers, the text is too short, or nothing could be measured.

    Example:
        >>> result = layerwise.diagnose("demo", parts=("ablation",))  # doctest: +SKIP
        >>> result.table()  # doctest: +SKIP
    """
    if isinstance(model, str) and is_run(model):
        raise RunError(
            f"model must be a model, got the run directory {model}. `layerwise report {model}` shows the results, and "
            f"`layerwise train schedule {model} --output FILE` writes a growth schedule from it."
        )
    _refuse_text(text, minutes, tokens, batches, metric)
    has_recovery = all_layers or bool(recovery_layers) or recovery_steps != RECOVERY_STEPS
    if all_layers and recovery_layers:
        raise OptionError(f"{spell('all_layers')} and {spell('recovery_layers')} cannot be combined. Pass one of them.")
    chosen_parts = sort_parts(WITHOUT_TEXT if batches is not None and tuple(parts) == DEFAULT_PARTS else parts)
    if has_recovery and "recovery" not in chosen_parts:
        raise OptionError(f"The options for recovery require {spell('parts')} recovery.")
    if curve_tokens != CURVE_TOKENS and CURVE_PARTS.isdisjoint(chosen_parts):
        raise OptionError(f"{spell('curve_tokens')} requires {spell('parts')} {' or '.join(sorted(CURVE_PARTS))}.")

    from layerwise.measure.interventions.ablation import refuse_shallow
    from layerwise.measure.recovery.recovery import DEFAULT_TREATMENTS, TREATMENTS
    from layerwise.runner.opening import open_corpus, open_stack
    from layerwise.runner.study import RunDescription, start_run
    from layerwise.studies.diagnose import steps
    from layerwise.studies.diagnose.context import PartSettings

    reporter = reporter or Silent()
    corpus = None if batches is not None else open_corpus(text, str(model))
    stack = open_stack(
        model,
        reporter,
        device=device,
        dtype=dtype,
        device_map=device_map,
        resident_layers=resident_layers,
        tokenizer=tokenizer,
        layers=layers,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    refuse_shallow(stack)
    if beyond := [layer for layer in recovery_layers if layer >= stack.depth]:
        raise MeasureError(f"{spell('recovery_layers')} must be below {stack.depth}, got {beyond[0]}.")
    settle = partial(
        PartSettings,
        stack=stack,
        seed=seed,
        min_effect=min_effect,
        curve_tokens=curve_tokens,
        recovery_steps=recovery_steps,
        recovery_layers=range(stack.depth) if all_layers else tuple(recovery_layers) or None,
        treatments=TREATMENTS if all_layers else DEFAULT_TREATMENTS,
    )
    if batches is not None:
        chosen = steps.take_batches(stack, chosen_parts, batches, metric)
    else:
        assert corpus is not None, "a text is required without batches"
        smaller = steps.list_smaller_parts(
            chosen_parts, has_recovery=has_recovery, has_curves=curve_tokens != CURVE_TOKENS
        )
        with report_waiting(reporter, f"tokenizing {corpus.name} and timing a batch"):
            chosen = steps.choose_text_of_parts(settle, [chosen_parts, *smaller], text, corpus, batch_tokens)
    settings = settle(parts=tuple(chosen.options.get("parts", chosen_parts)), text=chosen.data)
    manifest = steps.describe_run(settings, batch_tokens, all_layers=all_layers, recovery_layers=recovery_layers)
    tasks = [steps.PartTask(part, settings, chosen.seconds) for part in settings.parts]
    described = RunDescription(
        manifest=manifest,
        lines=steps.describe_work(settings, chosen.says),
        tasks=tasks,
        is_empty=steps.has_no_measurement,
        chosen=chosen.options,
    )
    with start_run(described) as study:
        for task in tasks:
            study.execute(task)
        if steps.has_no_measurement(study.run):
            raise MeasureError("; ".join(note.text for note in study.run.store.notes()) or "nothing could be measured")
    return Result(study.folder)


def _refuse_text(text: object, minutes: object, tokens: object, batches: object, metric: object) -> None:
    if minutes is not None and tokens is not None:
        raise OptionError(f"{spell('minutes')} and {spell('tokens')} both set the amount of text. Pass one of them.")
    if text is not None and batches is not None:
        raise OptionError("text and batches both set the data. Pass one of them.")
    if metric is not None and batches is None:
        raise OptionError("metric requires batches, whose rows it scores. Pass batches too.")
