"""Find and load benchmarks of EleutherAI's lm-eval. Needs the extra `layerwise[eval]`.

`normalised` maps guessing to 0 and the original model to 1 (Sun et al. 2024, arXiv 2407.09298, section 2). Chance is
the paper's for its five benchmarks; otherwise the mean of 1 / choices, or 0 for generated answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from layerwise.errors import MeasureError, near_matches
from layerwise.measure.language.harness import quietly, seeded
from layerwise.measure.language.task_summary import ChanceScale
from layerwise.results.rows import Score


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
    """Load the benchmarks called `names`: files in the folder `include_path` first, then lm-eval's own.

    lm-eval's benchmarks need data from the Hub or its cache; a `.yaml` of your own with `dataset_path: json` and local
    `data_files` needs no network. `seed` fixes what a benchmark draws on loading; `num_fewshot` replaces the file's
    number of examples, unless that is 0.

    Raises `MeasureError` without lm-eval, and for an unknown name, a missing folder, and data that cannot be loaded.
    """
    wanted = tuple(dict.fromkeys(names))
    if not wanted:
        raise MeasureError(f"no benchmark was named; for example: {', '.join(CHANCE)}")
    if include_path is not None and not Path(include_path).is_dir():
        raise MeasureError(f"there is no folder {include_path}: --task-folder should hold lm-eval task files (.yaml)")
    with quietly():
        manager = _manager(wanted, include_path)
        for name in wanted:
            if name not in manager.task_index:
                close = get_close_matches(name, manager.all_tasks, n=5)
                raise MeasureError(
                    f"unknown benchmark {name!r}; {near_matches(name, {*CHANCE, *close})}; "
                    "`lm-eval ls tasks` lists them all"
                )
        with seeded(seed):
            loaded = _load(manager, wanted, include_path)
    for task in loaded["tasks"].values():
        examples = task.get_config("num_fewshot")
        if examples is None or (num_fewshot is not None and examples != 0):
            task.set_config(key="num_fewshot", value=num_fewshot or 0)
    return Benchmarks(wanted, loaded)


def _manager(names: Sequence[str], include_path: str | Path | None) -> Any:
    try:
        import lm_eval.tasks
    except ImportError as error:
        raise MeasureError(
            f"benchmarks need lm-eval, which is not installed ({error}): pip install 'layerwise[eval]'"
        ) from error
    home = Path(lm_eval.tasks.__file__).parent
    beginnings = {"_".join(name.split("_")[:count]) for name in names for count in range(1, name.count("_") + 2)}
    likely = [home / each for each in sorted(beginnings) if each.isidentifier() and (home / each).is_dir()]
    own = [] if include_path is None else [Path(include_path).resolve()]
    # Later folders win, so a task file of the user's own goes before lm-eval's of the same name.
    manager = lm_eval.tasks.TaskManager(include_path=[*likely, *own], include_defaults=False)
    if all(name in manager.task_index for name in names):
        return manager
    return lm_eval.tasks.TaskManager(include_path=own)


def _load(manager: Any, names: Sequence[str], folder: str | Path | None) -> Any:
    try:
        try:
            return manager.load(list(names))
        except FileNotFoundError:
            if folder is None:
                raise
            with chdir(folder):  # `data_files` are looked up in the working directory, then in the task folder
                return manager.load(list(names))
    # Task files run code and data comes from the network, so nearly any error can come from here.
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise MeasureError(
            f"the data of {', '.join(names)} could not be loaded ({type(error).__name__}: {reason}); lm-eval's own "
            "benchmarks come from the Hugging Face Hub, so without a network write a task file with local data_files, "
            "and name its folder with --task-folder"
        ) from error


CHANCE: Mapping[str, float] = MappingProxyType(
    {
        # Four options for nearly every question (Clark et al. 2018).
        "arc_challenge": 0.25,
        # Four endings (Zellers et al. 2019).
        "hellaswag": 0.25,
        # Two options (Sakaguchi et al. 2020).
        "winogrande": 0.5,
        # The last word of a passage (Paperno et al. 2016) and a number written out (Cobbe et al. 2021) are not guessed.
        "lambada_openai": 0.0,
        "gsm8k": 0.0,
    }
)
"""The Painters' benchmarks, and the accuracy of guessing on each."""

PROPORTIONS = ("acc", "acc_norm", "exact_match")
"""Metrics that are a share of right answers, and so have a chance level."""


def chance_of(name: str, task: Any) -> float:
    if name in CHANCE:
        return CHANCE[name]
    if task.OUTPUT_TYPE != "multiple_choice":
        return 0.0
    # With mutual information each choice is asked about twice, with its question and without.
    twice = "acc_mutual_info" in task.aggregation()
    choices = Counter(instance.doc_id for instance in task.instances).values()
    return sum((2 if twice else 1) / count for count in choices) / len(choices)


def normalised(scores: Iterable[Score], full: str, chance: Mapping[str, float] = CHANCE) -> list[Score]:
    """Scale `scores` to 0 for chance and 1 for the full model: condition `normalised`.

        (score - chance) / (score of the full model - chance)

    Only accuracies of benchmarks in `chance` are scaled, and only where the full model's interval lies above chance.
    The intervals do not include the full model's own error.
    """
    rows = [score for score in scores if score.task in chance and score.metric.split("/")[0] in PROPORTIONS]
    best = {(score.task, score.metric): score for score in rows if score.plan == full}
    scaled = []
    for score in rows:
        top, floor = best.get((score.task, score.metric)), chance[score.task]
        if top is None or (top.value if top.low is None else top.low) <= floor:
            continue
        scaled.append(ChanceScale(floor, top.value).of(score))
    return scaled
