"""The interface to EleutherAI's lm-eval: a language model class for it, and its results as rows.

lm-eval provides the tasks, the tokens to score, and the metrics; the caller computes the model's answers.
`harness_results` is what lm-eval's own command would write, without its network and system queries.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import math
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from layerwise.errors import MeasureError
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BENCHMARK
from layerwise.stack import Stack
from layerwise.stack.inputs import main_tensor

BOOTSTRAPS = 1000
"""Resamples behind the standard error of a metric that is no mean, such as perplexity."""

BATCH_SIZE = 8
"""Requests of a benchmark that writes which run together, on a processor."""

ACCELERATED_BATCH_SIZE = 64
"""The same on an accelerator, where a step of eight takes as long as one of 64: what takes time is starting kernels."""


def batch_size(stack: Stack) -> int:
    return BATCH_SIZE if stack.device.type == "cpu" else ACCELERATED_BATCH_SIZE


def harness_model(stack: Stack) -> Any:
    from lm_eval.models.huggingface import HFLM

    # lm-eval gives the tokenizer a padding token where there is none; the user's stays as it is.
    return HFLM(pretrained=stack.model, tokenizer=copy.deepcopy(stack.tokenizer), batch_size=batch_size(stack))


def evaluate(harness_model: Any, loaded: Mapping[str, Any], limit: int | None, seed: int) -> Mapping[str, Any]:
    """Return lm-eval's results on the `loaded` tasks, by benchmark; the global random state is preserved."""
    import lm_eval

    with_seed(loaded["tasks"].values(), seed)
    with seeded(seed):
        # Not simple_evaluate: that collects the environment each time, which takes seconds a plan.
        results = lm_eval.evaluate(harness_model, loaded, limit=limit, bootstrap_iters=BOOTSTRAPS, log_samples=True)
    evaluated: Mapping[str, Any] = results
    return evaluated


def with_seed(tasks: Iterable[Any], seed: int) -> None:
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
                BENCHMARK, named(metric, filtered), float(value), low, high, task=task, plan=plan, documents=documents
            )


def named(metric: str, filtered: str) -> str:
    """The name of a metric in rows: lm-eval's, and the filter where it has several.

    >>> named("acc", "none"), named("exact_match", "strict-match")
    ('acc', 'exact_match/strict-match')
    """
    return metric if filtered == "none" else f"{metric}/{filtered}"


@contextlib.contextmanager
def refusing_broken_logits(model: nn.Module, plan: Plan) -> Iterator[None]:
    def check(module: nn.Module, args: Any, output: Any) -> None:
        logits: Tensor = main_tensor(output)
        # Minus infinity is how some models rule a token out; the greatest logit is finite all the same.
        if not logits.amax().isfinite():
            raise MeasureError(
                f"plan {plan} gives logits that are not finite, so its benchmarks mean nothing: leave it out, "
                "or load the model in float32"
            )

    handle = model.register_forward_hook(check)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
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
def seeded(seed: int) -> Iterator[None]:
    """Seed Python's, NumPy's and torch's generators (CPU and accelerators) within the context; restore them after."""
    python, numpy_, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    accelerator: Any = torch.get_device_module()
    # One that was never used has no state to keep, and asking for it would start the device.
    used = torch.accelerator.is_available() and getattr(accelerator, "is_initialized", lambda: True)()
    of_all = "_all" if hasattr(accelerator, "get_rng_state_all") else ""
    there = getattr(accelerator, f"get_rng_state{of_all}")() if used else None
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)  # numpy takes 32 bits
        torch.manual_seed(seed)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_)
        torch.set_rng_state(cpu)
        if used:
            getattr(accelerator, f"set_rng_state{of_all}")(there)


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
    """Return `results` as lm-eval stores them, without samples; `model_args` names the model and the plan."""
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
