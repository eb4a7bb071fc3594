"""`layerwise sweep`: the loss change of many layer plans on one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from layerwise.errors import MeasureError, OptionError
from layerwise.plan.families import TWICE
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
    Plans,
    Range,
    Rare,
    RowMetric,
    Seed,
    TextLike,
    Trait,
)
from layerwise.runner.plan_choice import PlanChoice
from layerwise.runner.reporter import Reporter, Silent, report_waiting
from layerwise.runner.result import Result
from layerwise.runner.verb import spell, verb

DEFAULT_FAMILIES = ("painters", "leave_one_out", "swap_adjacent")


@verb(
    "sweep",
    group="Measuring",
    examples=(
        "demo",
        "HuggingFaceTB/SmolLM2-135M --text book.txt --families painters",
        './my-model --text texts/ --plan "0-13 18-29" --plan "0-29 0-29"',
        "./my-model --text texts/ --minutes 5",
        "./my-model --text texts/ --tasks hellaswag,winogrande,gsm8k",
    ),
)
def sweep(
    model: ModelLike,
    text: TextLike = None,
    *,
    families: Annotated[Names, Trait.EMPTY] = DEFAULT_FAMILIES,
    plans: Annotated[Plans, Trait.EMPTY] = (),
    minutes: Annotated[float | None, Range(least=1, most=10_000)] = None,
    tokens: Annotated[int | Literal["all"] | None, Range(least=1)] = None,
    tasks: Names = (),
    window: Rare[Annotated[Sequence[str], Trait.REPEATED, Metavar("A-B")]] = (),
    loops: Rare[Annotated[str | None, Metavar("NUMBERS")]] = None,
    times: Rare[Annotated[str, Metavar("NUMBERS")]] = str(TWICE),
    prompt: Rare[Annotated[Sequence[str], Trait.REPEATED, Metavar("TEXT")]] = (),
    new_tokens: Rare[Count] = 40,
    task_folder: Rare[PathLike] = None,
    task_limit: Rare[Count | None] = None,
    num_fewshot: Rare[Annotated[int | None, Range(least=0)]] = None,
    similarity: Rare[bool] = True,
    max_length: Rare[Annotated[int | None, Range(least=2)]] = None,
    batch_tokens: Rare[Count | None] = None,
    batches: Batches = None,
    metric: RowMetric = None,
    device: Rare[Device] = "auto",
    dtype: Rare[Dtype] = "auto",
    device_map: Rare[DeviceMap | None] = None,
    resident_layers: Rare[Count | None] = None,
    tokenizer: Rare[Location] = None,
    layers: Rare[str | None] = None,
    revision: Rare[str | None] = None,
    trust_remote_code: Rare[bool] = False,
    ray: Rare[Annotated[str | None, Metavar("ADDRESS")]] = None,
    workers: Rare[Annotated[int | None, Range(least=1, most=10_000)]] = None,
    run: PathLike = None,
    overwrite: bool = False,
    seed: Seed = 0,
    reporter: Reporter | None = None,
) -> Result:
    """Evaluate many layer plans on one model and report each loss change with a confidence interval.

    An effect is the difference in loss (nats/token) from the original model on the same documents. To resume an
    interrupted run, run the same command again.

    Args:
        model: Hub id, folder, GGUF file, or demo.
        text: Text file, a folder of them, or hf:DATASET.
        families: Plan families: painters (skip, repeat, reorder or parallelize layers), leave_one_out (skip a layer),
            swap_adjacent, leave_branch_out (skip a sublayer), every_window (skip a range), random_subsets (skip random
            layers), repeat_blocks (run a range twice), damped_repeats (and halve its update), bits (quantize a layer),
            bits_noise (add as much noise), looped (loop parallel layers), gain_sweep (scale their update); "" for none.
        plans: Plan to run; repeat for more.
        minutes: Time budget in minutes (default: 10).
        tokens: Number of tokens to score, or all (default: what fits the time budget).
        tasks: Benchmarks from lm-eval.
        window: Also apply painters to a range, such as 4-8.
        loops: Loop counts for looped, such as 1-28.
        times: Runs per block in repeat_blocks.
        prompt: Prompt to continue; repeat for more.
        new_tokens: Number of tokens to generate.
        task_folder: Folder of lm-eval task files.
        task_limit: Maximum number of questions per benchmark.
        num_fewshot: Number of examples before each question.
        similarity: Compare the hidden states of the layers.
        max_length: Maximum length of a text in tokens.
        batch_tokens: Number of tokens in a batch.
        batches: Batches to score instead of a text; see `wrap_batches`.
        metric: Function of the outputs and a batch that returns a number per row; lower is better.
        device: Device: auto, cpu, cuda, mps or xpu.
        dtype: Weight dtype. `auto` uses the checkpoint's dtype (float32 on CPU).
        device_map: Distribute the model over devices with accelerate.
        resident_layers: Maximum number of layers in memory; the others are read from disk when needed.
        tokenizer: Tokenizer, if the model does not include one.
        layers: Path of the layers, such as model.layers.
        revision: Branch, tag or commit of a hub model.
        trust_remote_code: Run code that comes with the model.
        ray: Address of a Ray cluster: local (on this machine), auto, or HOST:PORT; needs layerwise[ray].
        workers: Number of single-threaded workers on Ray.
        run: Run directory (default: derived from options).
        overwrite: Discard the results of an earlier run.
        seed: Random seed.
        reporter: Where progress goes (default: the terminal or the notebook).

    Returns:
        The effects of all plans, and the findings, tables and page of the run.

    Raises:
        OptionError: If options cannot be combined.
        PlanError: If a family is unknown, or a plan runs layers that the model does not have.
        DataError: If there is too little text.
        MeasureError: If losses are not finite. The other results are stored first.

    Example:
        >>> result = layerwise.sweep("demo", families=("leave_one_out",))  # doctest: +SKIP
        >>> result.table()  # doctest: +SKIP
    """
    _check_options(minutes, tokens, text, batches, metric)
    chosen_plans = PlanChoice.check(families, plans, window, loops, times)
    _check_requirements(
        {
            "loops": loops is None or "looped" in families or bool(window),
            "times": times == str(TWICE) or "repeat_blocks" in families,
            "task_folder": task_folder is None or bool(tasks),
            "task_limit": task_limit is None or bool(tasks),
            "num_fewshot": num_fewshot is None or bool(tasks),
            "new_tokens": new_tokens == 40 or bool(prompt),
            "workers": workers is None or ray is not None,
        }
    )
    if batches is not None and (tasks or prompt):
        raise MeasureError("tasks and prompt cannot be combined with batches. Remove them, or pass text instead.")
    from layerwise.measure.language.continuations import encode_prompt
    from layerwise.measure.language.evaluation_data import wrap_batches
    from layerwise.runner.opening import open_corpus, open_stack
    from layerwise.runner.study import RunDescription, start_run
    from layerwise.runner.text_length import TextRequest
    from layerwise.studies.sweep import cluster, steps
    from layerwise.studies.sweep.benchmarks import BenchmarksTask, load_benchmarks
    from layerwise.studies.sweep.tasks import ContinuationsTask, LossesTask, SimilarityTask

    reporter = reporter or Silent()
    with nullcontext() if ray is None else cluster.use_one_thread(ray):
        corpus = None if batches is not None else open_corpus(text, model)
        opening: dict[str, Any] = {
            "device": device,
            "dtype": dtype,
            "device_map": device_map,
            "resident_layers": resident_layers,
            "tokenizer": tokenizer,
            "layers": layers,
            "revision": revision,
            "trust_remote_code": trust_remote_code,
        }
        stack = open_stack(model, reporter, **opening)
        request = replace(TextRequest.of_call(text), is_shared=ray is not None)
        if corpus is None:
            prepared = steps.prepare_batches(stack, chosen_plans, wrap_batches(stack, batches or (), metric))
        else:
            with report_waiting(reporter, f"tokenizing {corpus.name}"):
                prepared = steps.prepare(
                    stack,
                    chosen_plans,
                    corpus,
                    request,
                    size=batch_tokens,
                    similarity=similarity,
                    seed=seed,
                )
        describe = partial(
            steps.describe_run,
            stack,
            prompt=prompt,
            new_tokens=new_tokens,
            tasks=tasks,
            task_folder=None if task_folder is None else Path(task_folder),
            task_limit=task_limit,
            num_fewshot=num_fewshot,
            seed=seed,
        )
        manifest = describe(prepared)
        if batch_tokens is None and corpus is not None:
            prepared = steps.resume_batch_size(prepared, stack, corpus, manifest, request, seed)
            manifest = describe(prepared)
        for each in prompt:
            encode_prompt(stack, each, new_tokens)
        losses = LossesTask(
            stack,
            prepared.members,
            prepared.plans,
            prepared.text,
            prepared.options.families,
            prepared.notes,
            seed,
            prepared.compared,
            prepared.chosen.seconds,
        )
        benchmarks: BenchmarksTask | None = None
        if tasks:
            benchmarks = load_benchmarks(
                stack,
                prepared.members,
                prepared.plans,
                tasks=tasks,
                task_folder=None if task_folder is None else Path(task_folder),
                task_limit=task_limit,
                num_fewshot=num_fewshot,
                batch_tokens=prepared.batch_tokens,
                seed=seed,
            )
        description = RunDescription(
            manifest=manifest,
            lines=[
                *steps.describe_work(
                    stack, prepared, None if ray is None else cluster.count_planned_workers(ray, workers)
                ),
                *(benchmarks.describe() if benchmarks is not None else ()),
                *(f"note: {note}" for note in prepared.unsupported),
            ],
            tasks=[losses, *([benchmarks] if benchmarks is not None else [])],
            chosen=prepared.chosen.options,
        )
        with start_run(description) as study:
            shared = cluster.SharedModel(model if isinstance(model, str | Path) else stack, opening, manifest)
            on_cuda = manifest.device == "cuda"
            runner = None if ray is None else cluster.SweepTasks(ray, workers, shared, on_cuda, reporter)
            with nullcontext() if runner is None else closing(runner):
                failures = study.execute(replace(losses, runner=runner))
                if similarity and batches is None:
                    study.execute(SimilarityTask(stack, prepared.members, prepared.text, seed))
                if prompt:
                    study.execute(ContinuationsTask(stack, prepared.members, prompt, new_tokens))
                if benchmarks is not None:
                    failures = [*failures, *study.execute(replace(benchmarks, runner=runner))]
            if failures:
                raise MeasureError("\n".join(failures))
    return Result(study.folder)


def _check_options(minutes: object, tokens: object, text: object, batches: object, metric: object) -> None:
    if minutes is not None and tokens is not None:
        raise OptionError(f"{spell('minutes')} and {spell('tokens')} both set the amount of text. Pass one of them.")
    if text is not None and batches is not None:
        raise OptionError("text and batches both set the data. Pass one of them.")
    if metric is not None and batches is None:
        raise OptionError("metric requires batches, whose rows it scores. Pass batches too.")


def _check_requirements(met: Mapping[str, bool]) -> None:
    requirements = {
        "loops": f"{spell('families')} looped or {spell('window')}",
        "times": f"{spell('families')} repeat_blocks",
        "task_folder": spell("tasks"),
        "task_limit": spell("tasks"),
        "num_fewshot": spell("tasks"),
        "new_tokens": spell("prompt"),
        "workers": spell("ray"),
    }
    for name, requirement in requirements.items():
        if not met[name]:
            raise OptionError(f"{spell(name)} requires {requirement}.")
