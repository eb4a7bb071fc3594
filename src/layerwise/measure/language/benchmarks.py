"""Interface to EleutherAI's lm-eval (extra `layerwise[eval]`): load and run benchmarks, and convert results to rows."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import math
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerwise.errors import MeasureError, near_matches
from layerwise.measure.language.task_summary import ChanceScale
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BENCHMARK
from layerwise.stack import Stack
from layerwise.stack.inputs import main_tensor


@dataclass(frozen=True, slots=True, eq=False)
class Benchmarks:
    names: tuple[str, ...]
    loaded: Any


def find_benchmarks(
    names: Sequence[str],
    include_path: str | Path | None = None,
    *,
    seed: int = 0,
    num_fewshot: int | None = None,
) -> Benchmarks:
    """Load benchmarks by name from lm-eval.

    lm-eval downloads the data of its benchmarks from the Hugging Face Hub unless they are cached. A task file with
    `dataset_path: json` and local `data_files` needs no network.

    Args:
        names: Names of the benchmarks.
        include_path: Directory with task files (`.yaml`), which take precedence over lm-eval's.
        seed: Seed of random choices while loading.
        num_fewshot: Number of few-shot examples. It does not apply to task files that set it to 0.

    Raises:
        MeasureError: If lm-eval is not installed, a benchmark is unknown, the directory is missing, or data cannot be
            loaded.
    """
    names = tuple(dict.fromkeys(names))
    if not names:
        raise MeasureError(f"At least one benchmark must be given, for example {', '.join(CHANCE)}.")
    if include_path is not None and not Path(include_path).is_dir():
        raise MeasureError(f"--task-folder must be a directory with lm-eval task files (.yaml), got {include_path}.")
    with silence_harness():
        manager = _manager(names, include_path)
        for name in names:
            if name not in manager.task_index:
                close = get_close_matches(name, manager.all_tasks, n=5)
                raise MeasureError(
                    f"Unknown benchmark {name!r}: {near_matches(name, {*CHANCE, *close})}. "
                    "`lm-eval ls tasks` lists all benchmarks."
                )
        with seeded_generators(seed):
            loaded = _load(manager, names, include_path)
    for task in loaded["tasks"].values():
        examples = task.get_config("num_fewshot")
        if examples is None or (num_fewshot is not None and examples != 0):
            task.set_config(key="num_fewshot", value=num_fewshot or 0)
    return Benchmarks(names, loaded)


def _manager(names: Sequence[str], include_path: str | Path | None) -> Any:
    try:
        import lm_eval.tasks
    except ImportError as error:
        raise MeasureError(
            f"Benchmarks need lm-eval, which is not installed ({error}). Run: pip install 'layerwise[eval]'"
        ) from error
    root = Path(lm_eval.tasks.__file__).parent
    prefixes = {"_".join(name.split("_")[:count]) for name in names for count in range(1, name.count("_") + 2)}
    likely = [root / each for each in sorted(prefixes) if each.isidentifier() and (root / each).is_dir()]
    include = [] if include_path is None else [Path(include_path).resolve()]
    # Later directories take precedence, so the user's task files replace lm-eval's.
    manager = lm_eval.tasks.TaskManager(include_path=[*likely, *include], include_defaults=False)
    if all(name in manager.task_index for name in names):
        return manager
    return lm_eval.tasks.TaskManager(include_path=include)


def _load(manager: Any, names: Sequence[str], folder: str | Path | None) -> Any:
    try:
        try:
            return manager.load(list(names))
        except FileNotFoundError:
            if folder is None:
                raise
            with chdir(folder):  # relative `data_files` may be in the task folder
                return manager.load(list(names))
    # Task files run code and data comes from the network, so any error is possible.
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise MeasureError(
            f"The data of {', '.join(names)} could not be loaded ({type(error).__name__}: {reason}). lm-eval's "
            "benchmarks need the Hugging Face Hub; without a network, pass a task file with local data_files "
            "(--task-folder)."
        ) from error


CHANCE: Mapping[str, float] = MappingProxyType(
    {
        "arc_challenge": 0.25,
        "hellaswag": 0.25,
        "winogrande": 0.5,
        "lambada_openai": 0.0,
        "gsm8k": 0.0,
    }
)
"""The accuracy of guessing in the benchmarks of Sun et al. 2024 (arXiv 2407.09298)."""

PROPORTIONS = ("acc", "acc_norm", "exact_match")
"""Metrics that are the fraction of correct answers."""


def find_chance(name: str, task: Any) -> float:
    """Return the accuracy of guessing: from `CHANCE`, 0 if text is generated, otherwise the mean of 1 / choices."""
    if name in CHANCE:
        return CHANCE[name]
    if task.OUTPUT_TYPE != "multiple_choice":
        return 0.0
    # With mutual information each choice is scored twice, with and without its question.
    twice = "acc_mutual_info" in task.aggregation()
    choices = Counter(instance.doc_id for instance in task.instances).values()
    return sum((2 if twice else 1) / count for count in choices) / len(choices)


def normalize_scores(scores: Iterable[Score], full: str, chance: Mapping[str, float] = CHANCE) -> list[Score]:
    """Scale accuracies so that chance is 0 and the original model, the plan `full`, is 1 (arXiv 2407.09298, section 2).

    Returns only benchmarks in `chance` on which the interval of the original model is above chance.
    """
    rows = [score for score in scores if score.task in chance and score.metric.split("/")[0] in PROPORTIONS]
    best = {(score.task, score.metric): score for score in rows if score.plan == full}
    scaled = []
    for score in rows:
        top, floor = best.get((score.task, score.metric)), chance[score.task]
        if top is None or (top.value if top.low is None else top.low) <= floor:
            continue
        scaled.append(ChanceScale(floor, top.value).apply(score))
    return scaled


BOOTSTRAPS = 1000
"""Number of bootstrap resamples for the standard error of metrics such as perplexity."""

BATCH_SIZE, ACCELERATED_BATCH_SIZE = 8, 64
"""Requests per batch when generating text on a CPU, and on an accelerator."""


def batch_size(stack: Stack) -> int:
    return BATCH_SIZE if stack.device.type == "cpu" else ACCELERATED_BATCH_SIZE


def harness_model(stack: Stack) -> Any:
    from lm_eval.models.huggingface import HFLM

    # lm-eval may add a padding token to the tokenizer.
    return HFLM(pretrained=stack.model, tokenizer=copy.deepcopy(stack.tokenizer), batch_size=batch_size(stack))


def evaluate(harness_model: Any, loaded: Mapping[str, Any], limit: int | None, seed: int) -> Mapping[str, Any]:
    """Run lm-eval on the `loaded` benchmarks and return its results; the global random state is preserved."""
    import lm_eval

    set_fewshot_seed(loaded["tasks"].values(), seed)
    with seeded_generators(seed):
        # Not simple_evaluate, which collects the environment each time (seconds per plan).
        results: Mapping[str, Any] = lm_eval.evaluate(
            harness_model, loaded, limit=limit, bootstrap_iters=BOOTSTRAPS, log_samples=True
        )
    return results


def set_fewshot_seed(tasks: Iterable[Any], seed: int) -> None:
    for task in tasks:
        task.set_fewshot_seed(seed=seed)


def result_rows(plan: str, results: Mapping[str, Any]) -> Iterator[Score]:
    for task, metrics in results["results"].items():
        documents = results["n-samples"].get(task, {}).get("effective")
        for key, value in metrics.items():
            metric, comma, filtered = key.partition(",")
            if not comma or metric.endswith("_stderr") or not isinstance(value, int | float):
                continue
            error = metrics.get(f"{metric}_stderr,{filtered}")
            reach = 1.96 * error if isinstance(error, int | float) and math.isfinite(error) else None
            low, high = (None, None) if reach is None else (float(value - reach), float(value + reach))
            yield Score(
                BENCHMARK,
                metric_name(metric, filtered),
                float(value),
                low,
                high,
                task=task,
                plan=plan,
                documents=documents,
            )


def metric_name(metric: str, filtered: str) -> str:
    """Return the name of a metric in rows: `metric`, or `metric/filter` if the filter is not "none".

    >>> metric_name("acc", "none"), metric_name("exact_match", "strict-match")
    ('acc', 'exact_match/strict-match')
    """
    return metric if filtered == "none" else f"{metric}/{filtered}"


@contextlib.contextmanager
def check_logits(model: nn.Module, plan: Plan) -> Iterator[None]:
    def check(module: nn.Module, args: Any, output: Any) -> None:
        logits: Tensor = main_tensor(output)
        # Some models mask tokens with minus infinity, so only the largest logit must be finite.
        if not logits.amax().isfinite():
            raise MeasureError(
                f"The logits of plan {plan} must be finite, got NaN or infinity. Omit the plan or load the model in "
                "float32."
            )

    handle = model.register_forward_hook(check)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def silence_harness() -> Iterator[None]:
    logger = logging.getLogger("lm_eval")
    level, single = logger.level, os.environ.get("DISABLE_MULTIPROC")
    logger.setLevel(logging.ERROR)
    os.environ["DISABLE_MULTIPROC"] = "1"
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
        if single is None:
            del os.environ["DISABLE_MULTIPROC"]
        else:
            os.environ["DISABLE_MULTIPROC"] = single


@contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Seed Python, NumPy and torch (CPU and accelerators) within the context, then restore their random states."""
    python, numpy_, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    accelerator: Any = torch.get_device_module()
    # Reading the state of an unused accelerator would initialize it.
    is_used = torch.accelerator.is_available() and getattr(accelerator, "is_initialized", lambda: True)()
    suffix = "_all" if hasattr(accelerator, "get_rng_state_all") else ""
    state = getattr(accelerator, f"get_rng_state{suffix}")() if is_used else None
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_)
        torch.set_rng_state(cpu)
        if is_used:
            getattr(accelerator, f"set_rng_state{suffix}")(state)


SOURCE = "hf"


def harness_results(
    results: Mapping[str, Any],
    harness: Any,
    stack: Stack,
    plan: Plan,
    *,
    limit: int | None,
    seed: int,
) -> dict[str, Any]:
    """Return `results` as in lm-eval's results file, without samples. Its `model_args` name the model and the plan."""
    from lm_eval.loggers.utils import add_tokenizer_info
    from lm_eval.utils import hash_string

    content = {name: value for name, value in results.items() if name != "samples"}
    arguments = {"pretrained": stack.source.name, "plan": str(plan)}
    seeds = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed")
    content["config"] = {
        "model": SOURCE,
        "model_args": arguments,
        "model_num_parameters": sum(parameter.numel() for parameter in stack.model.parameters()),
        "model_dtype": str(stack.dtype),
        "model_revision": stack.source.revision or "main",
        "model_sha": stack.source.revision or "",
        "batch_size": batch_size(stack),
        "batch_sizes": [],
        "device": str(stack.device),
        "use_cache": None,
        "limit": limit,
        "bootstrap_iters": BOOTSTRAPS,
        "gen_kwargs": None,
        **dict.fromkeys(seeds, seed),
    }
    add_tokenizer_info(content, harness)
    content["task_hashes"] = {
        name: hash_string("".join(each["doc_hash"] + each["prompt_hash"] + each["target_hash"] for each in samples))
        for name, samples in results.get("samples", {}).items()
    }
    return content
