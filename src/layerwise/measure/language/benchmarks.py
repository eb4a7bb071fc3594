"""Benchmarks of EleutherAI's lm-eval, found and loaded; `layerwise.measure.language.benchmark_requests` asks them of
many plans at once. Needs the extra `layerwise[eval]`.

On the Painters' scale 0 is what guessing scores and 1 what the model as trained scores (Sun et al. 2024, arXiv
2407.09298, section 2; `normalised`). Guessing is known for the five benchmarks of the paper; of any other that offers
choices it is the mean of one over their number, and of one whose answer is written 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
    """Benchmarks with their questions loaded, ready to be run under many plans."""

    names: tuple[str, ...]
    loaded: Any


def find_benchmarks(
    names: Sequence[str],
    include_path: str | Path | None = None,
    *,
    seed: int = 0,
    num_fewshot: int | None = None,
) -> Benchmarks:
    """The benchmarks called `names`: files in the folder `include_path` first, then lm-eval's own.

    A benchmark of lm-eval needs its data from the Hub or its cache; one of your own, a `.yaml` in lm-eval's format
    whose `dataset_path` is `json` and whose `data_files` are local, needs no network. `seed` fixes what a benchmark
    draws as it is loaded. Each is asked with as many examples as its file says (gsm8k 5, the others of the paper 0), or
    with `num_fewshot`; a file that says 0 keeps to it, as in lm-eval.

    Raises `MeasureError` without lm-eval, for a name that is unknown, a folder that is not there, and data that cannot
    be loaded.
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
            loaded = _load(manager, wanted)
    for task in loaded["tasks"].values():
        examples = task.get_config("num_fewshot")
        if examples is None or (num_fewshot is not None and examples != 0):
            task.set_config(key="num_fewshot", value=num_fewshot or 0)
    return Benchmarks(wanted, loaded)


def _manager(names: Sequence[str], include_path: str | Path | None) -> Any:
    """An index of task files that knows `names`, or every file there is.

    Indexing all of lm-eval's files takes half a minute, so the folders whose names the benchmarks' begin with are tried
    first: `arc` for arc_challenge.
    """
    try:
        import lm_eval.tasks
    except ImportError as error:
        raise MeasureError(
            f"benchmarks need lm-eval, which is not installed ({error}): pip install 'layerwise[eval]'"
        ) from error
    home = Path(lm_eval.tasks.__file__).parent
    beginnings = {"_".join(name.split("_")[:count]) for name in names for count in range(1, name.count("_") + 2)}
    likely = [home / each for each in sorted(beginnings) if each.isidentifier() and (home / each).is_dir()]
    own = [] if include_path is None else [Path(include_path)]
    # Later folders win, so a task file of the user's own goes before lm-eval's of the same name.
    manager = lm_eval.tasks.TaskManager(include_path=[*likely, *own], include_defaults=False)
    if all(name in manager.task_index for name in names):
        return manager
    return lm_eval.tasks.TaskManager(include_path=own)


def _load(manager: Any, names: Sequence[str]) -> Any:
    try:
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
    """What guessing scores on lm-eval's `task` called `name`, whose requests are built."""
    if name in CHANCE:
        return CHANCE[name]
    if task.OUTPUT_TYPE != "multiple_choice":
        return 0.0
    # With mutual information each choice is asked about twice, with its question and without.
    twice = "acc_mutual_info" in task.aggregation()
    choices = Counter(instance.doc_id for instance in task.instances).values()
    return sum((2 if twice else 1) / count for count in choices) / len(choices)


def normalised(scores: Iterable[Score], full: str, chance: Mapping[str, float] = CHANCE) -> list[Score]:
    """The rows of `scores` on the Painters' scale, 0 for chance and 1 for the full model: condition `normalised`.

        (score - chance) / (score of the full model - chance)

    `full` is the plan of the full model, `chance` the accuracy of guessing by benchmark. Only shares of right answers
    of benchmarks in `chance` have such a row, and only where the full model's interval lies above chance: a model that
    guesses has nothing to lose. Intervals are scaled with the score; the full model's own error is not in them.
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
