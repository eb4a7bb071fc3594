"""A tiny model under plans: what lm-eval itself writes of it, and what a sweep says of the same tasks."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import tiny_llama
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.benchmark_requests import RequestLikelihoods, build_requests, judge_plan
from layerwise.measure.language.benchmarks import find_benchmarks, silence_harness
from layerwise.plan import Plan
from layerwise.results import Manifest
from layerwise.results.rows import Loss
from layerwise.runner.opening import make_manifest
from layerwise.stack import Stack, load
from tiny_tokenizers import ALPHABET, character_tokenizer

NAMES = ["arc_tiny", "lambada_tiny", "gsm8k_tiny"]
MODEL = ("model_num_parameters", "model_dtype", "model_revision", "model_sha")


def tiny_stack() -> Stack:
    torch.manual_seed(0)
    return load(tiny_llama(4, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())


def manifest_of(stack: Stack) -> Manifest:
    counts = {"documents": 1, "tokens": 1, "window": 1, "seed": 0}
    return make_manifest(stack, "w", corpus="c", corpus_hash="h", families=(), tasks=(), **counts)


def write_theirs(stack: Stack, plan: Plan, tasks: Path, limit: int, folder: Path, bootstrap: int = 0) -> None:
    import lm_eval
    import torch.utils.collect_env
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    tracker = EvaluationTracker(output_path=str(folder))
    with pytest.MonkeyPatch.context() as patch, stack.under(plan), silence_harness():
        patch.setattr(torch.utils.collect_env, "get_pretty_env_info", lambda: "it takes seconds")
        patch.setattr(HFLM, "get_model_info", lambda _: dict.fromkeys(MODEL))  # it asks the network
        results = lm_eval.simple_evaluate(
            HFLM(pretrained=stack.model, tokenizer=copy.deepcopy(stack.tokenizer), batch_size=4),
            tasks=NAMES,
            task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
            limit=limit,
            log_samples=True,
            evaluation_tracker=tracker,
            random_seed=0,
            numpy_random_seed=0,
            torch_random_seed=0,
            fewshot_random_seed=0,
            bootstrap_iters=bootstrap,
        )
        samples = results.pop("samples")
        tracker.save_results_aggregated(results, samples)
        for task, own in samples.items():
            tracker.save_results_samples(task, own)


def judge(stack: Stack, plans: Sequence[Plan], tasks: Path, limit: int) -> list[Any]:
    requests = build_requests(stack, find_benchmarks(NAMES, tasks), batch_tokens=512, limit=limit)
    rows: list[Loss] = []
    assert requests.likelihoods is not None
    sweep(stack, plans, requests.likelihoods, sink=rows.extend)
    answers = RequestLikelihoods.from_losses(rows, plans, requests.likelihoods)
    return [judge_plan(stack, plan, requests, answers) for plan in plans]
