"""Results of benchmarks in lm-eval's own JSON, beside the rows: one file a plan, for the tools that read lm-eval's.

    RUN/lm_eval/0-13 18-31-0c27d91e/results_2026-07-01T12-00-00.000000.json

A folder is named after its plan, and by a digest of it where the name must leave something out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from layerwise.measure.language.harness_results import SOURCE
from layerwise.plan import Plan
from layerwise.results import Manifest
from layerwise.results.run import write_whole

FOLDER = "lm_eval"
"""Where the files lie in the folder of a run."""

_LONGEST = 60
"""Characters of a plan in the name of its folder."""


def write_harness_results(
    folder: Path, plan: Plan, results: Mapping[str, Any], manifest: Manifest, began: datetime, seconds: float
) -> Path:
    """Write `results` (see `harness_results`) into the run `folder`, in the place of earlier ones of the plan.

    `seconds` are those of the judging alone: likelihoods are computed for all plans together.
    """
    from lm_eval.loggers.evaluation_tracker import GeneralConfigTracker
    from lm_eval.loggers.utils import get_git_commit_hash
    from lm_eval.utils import handle_non_serializable

    tracker = GeneralConfigTracker()
    tracker.model_source = SOURCE
    tracker.model_name = f"{manifest.model} under {plan}"
    tracker.model_name_sanitized = folder_name(plan)
    tracker.start_time, tracker.end_time = 0.0, seconds
    tracker.total_evaluation_time_seconds = str(seconds)
    content = {
        **results,
        "git_hash": get_git_commit_hash(),
        "date": began.timestamp(),
        "pretty_env_info": "\n".join(
            f"{name}: {value}" for name, value in {**manifest.versions, **manifest.hardware}.items()
        ),
        "transformers_version": version("transformers"),
        "lm_eval_version": version("lm_eval"),
        "upper_git_hash": None,
        **asdict(tracker),
    }
    text = json.dumps(content, indent=2, default=handle_non_serializable, ensure_ascii=False)
    own_folder = folder / FOLDER / folder_name(plan)
    own_folder.mkdir(parents=True, exist_ok=True)
    file = own_folder / f"results_{began.isoformat().replace(':', '-')}.json"
    write_whole(file, text.encode())
    for earlier in own_folder.glob("results_*.json"):
        if earlier != file:
            earlier.unlink()
    return file


def folder_name(plan: Plan) -> str:
    """A name for the results of a plan that any file system takes.

    >>> folder_name(Plan.parse("0-13 (14|15)*3 18-31"))
    '0-13 (14__15)__3 18-31-bfce828a'
    """
    from lm_eval.utils import sanitize_model_name

    text = str(plan)
    return f"{sanitize_model_name(text)[:_LONGEST]}-{sha256(text.encode()).hexdigest()[:8]}"
