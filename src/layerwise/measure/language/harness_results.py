"""What lm-eval found under a plan, as the object that its own command writes to a file, less what no result depends on.

`lm_eval.simple_evaluate` and lm-eval's `EvaluationTracker` add to the results what was evaluated and how. Both would
ask the network for the model and the system for its libraries, once a plan; what they say is said here by what
layerwise knows. `layerwise.experiments.sweep.benchmarks` adds when and where that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from layerwise.plan import Plan
from layerwise.stack import Stack

SOURCE = "hf"
"""What lm-eval calls models of transformers."""


def harness_results(
    results: Mapping[str, Any],
    harness: Any,
    stack: Stack,
    plan: Plan,
    *,
    limit: int | None,
    bootstraps: int,
    seed: int,
    batch_size: int | str,
) -> dict[str, Any]:
    """`results` of `lm_eval.evaluate` as lm-eval stores them: without samples, with `config` and `task_hashes`.

    `config` names the model and the plan in `model_args`, as `pretrained` and `plan`.
    """
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
        "batch_size": batch_size,
        "batch_sizes": [],
        "device": str(stack.device),
        "use_cache": None,
        "limit": limit,
        "bootstrap_iters": bootstraps,
        "gen_kwargs": None,
        **dict.fromkeys(seeds, seed),
    }
    add_tokenizer_info(content, harness)
    content["task_hashes"] = {
        name: hash_string("".join(each["doc_hash"] + each["prompt_hash"] + each["target_hash"] for each in samples))
        for name, samples in results.get("samples", {}).items()
    }
    return content
