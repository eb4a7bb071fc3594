"""`layerwise time`: time a forward pass under several plans."""

from __future__ import annotations

from typing import Annotated

from layerwise.errors import OptionError
from layerwise.plan import Plan
from layerwise.runner.arguments import Count, Device, Dtype, Location, ModelLike, PathLike, Plans, Range, Rare, Seed
from layerwise.runner.plan_choice import parse_plan
from layerwise.runner.reporter import Reporter, Silent, describe_model
from layerwise.runner.result import Result
from layerwise.runner.verb import spell, verb


@verb("time", group="Plans", examples=('demo --plan "0-11" --plan "0-3 6-11"',))
def time(
    model: ModelLike,
    plans: Plans = (),
    *,
    rounds: Annotated[int, Range(least=6)] = 20,
    batch: Rare[Count] = 1,
    context: Rare[Count] = 128,
    graphs: Rare[bool] = True,
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
) -> Result:
    """Time a model under several plans.

    Forward passes over a prompt (prefill) and over the next token (decode) are timed, in milliseconds. In each round,
    every plan is compared with the first one; a single plan is compared with the original model. To resume an
    interrupted run or to add rounds, run the same command again.

    Args:
        model: Hub id, folder, GGUF file, or demo.
        plans: Plan to run; repeat for more.
        rounds: Number of times that every plan is timed.
        batch: Number of prompts in a batch.
        context: Number of tokens of each prompt.
        graphs: On CUDA, replay every pass as a CUDA graph.
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
        The result with milliseconds, and the ratio to the first plan, by plan and setting.

    Raises:
        OptionError: If no plan is given.
        PlanError: If a plan runs layers that the model does not have.

    Example:
        >>> layerwise.time("demo", plans=("0-5 7-11",)).table()  # doctest: +SKIP
    """
    if not plans:
        raise OptionError(f'at least one plan is required. Pass it as {spell("plans")}, for example "0-3 6-11".')
    timed = [parse_plan(str(plan)) for plan in plans]
    from layerwise.runner.opening import open_stack
    from layerwise.runner.study import RunDescription, start_run
    from layerwise.studies.time import steps

    reporter = reporter or Silent()
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
    if len(timed) == 1:
        timed = [Plan.identity(stack.depth), *timed]
    timed = list(dict.fromkeys(timed))
    for plan in timed:
        stack.check(plan)
    settings = steps.find_settings(stack, batch, context)
    task = steps.plan_rounds(stack, timed, settings, rounds=rounds, graphs=graphs, seed=seed)
    manifest = steps.describe_run(stack, timed, settings, graphs=graphs, seed=seed)
    lines = [describe_model(stack), *steps.describe_settings(stack, timed, settings, rounds)]
    with start_run(RunDescription(manifest=manifest, lines=lines, tasks=[task])) as study:
        times = study.execute(task)
        study.write(steps.compute_times(timed, settings, times))
    return Result(study.folder)
