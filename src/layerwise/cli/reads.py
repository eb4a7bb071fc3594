"""Which options are read when: for each verb, those that only some of what can be asked reads, and by what.

One table for the whole command line. A row names options as the verb's function does, the condition under which they
are read, and in words what reads them; `layerwise.cli.asked` refuses those that were given and are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerwise.cli.evaluate import FINE_TUNED, SUITES
from layerwise.cli.options import names
from layerwise.results.run import MANIFEST
from layerwise.train.method_options import READ_BY, methods_of

Params = Mapping[str, Any]
"""What was asked, by the names of a verb's parameters; paths and choices as texts."""

Given = frozenset[str]
"""The parameters that were written on the command line."""

PAIRS = tuple(name for name in SUITES if name not in FINE_TUNED)
"""The suites whose sentences are scored as they are."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Options that are read when `when(params, given)`; `by` says what reads them."""

    options: tuple[str, ...]
    when: Callable[[Params, Given], bool]
    by: str


def _given(*wanted: str) -> Callable[[Params, Given], bool]:
    return lambda params, given: not given.isdisjoint(wanted)


def _is(name: str) -> Callable[[Params, Given], bool]:
    return lambda params, given: bool(params.get(name))


def _is_not(name: str) -> Callable[[Params, Given], bool]:
    return lambda params, given: not params.get(name)


def _no_run(params: Params, given: Given) -> bool:
    """Whether a model was given, and no run."""
    return not _is_run(params["model"])


def _is_run(place: str) -> bool:
    try:
        folder = Path(place).expanduser()
        return (folder / MANIFEST).is_file() and not (folder / "config.json").exists()
    except (OSError, RuntimeError):
        return False


def _trained(option: str) -> Reads:
    """An option that some methods of training read."""
    readers = READ_BY[option]

    def when(params: Params, given: Given) -> bool:
        return not set(methods_of(params["methods"])).isdisjoint(readers)

    return Reads((option,), when, f"it is read by {_listed(readers)}, and none of them is trained")


def _suites(*wanted: str) -> Callable[[Params, Given], bool]:
    """Whether one of these suites is asked; a file of pairs counts as `file`."""

    def when(params: Params, given: Given) -> bool:
        return any((name if name in SUITES else "file") in wanted for name in names(params["suite"]))

    return when


def _variants(params: Params, given: Given) -> bool:
    return any(name != "ltg" for name in names(params["variants"]))


def _parts(*readers: str) -> Callable[[Params, Given], bool]:
    return lambda params, given: not params.get("parts") or not set(names(params["parts"])).isdisjoint(readers)


def _listed(words: tuple[str, ...]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


_OPENING = ("tokenizer", "layers", "revision", "trust_remote_code")
_OF_A_RUN = "a run was given, and its models are opened as they were trained"

READS: Mapping[str, tuple[Reads, ...]] = {
    "sweep": (
        Reads(("task_folder", "task_limit"), _is("tasks"), "the benchmarks of --tasks read it, and none was named"),
    ),
    "diagnose": (
        Reads(("levels", "spend"), _is("emit_schedule"), "a schedule reads it, and none is written without "
              "--emit-schedule FILE"),
        Reads(
            ("tokens", "length", "batch_tokens", "curve_tokens", "thorough", "fresh", "seed", "device", "dtype",
             *_OPENING),
            _no_run, "a run was given, whose rows are read and nothing is measured",
        ),
        Reads(("budget",), _parts("ablation", "racing", "agreement", "pruning"),
              "it is read by ablation, racing, agreement and pruning, and none of them is among --parts"),
        Reads(("curve_tokens",), _parts("predictability", "manipulation", "pruning"),
              "it is read by predictability, manipulation and pruning, and none of them is among --parts"),
        Reads(("thorough",), _parts("recovery"), "it is read by recovery, which is not among --parts"),
    ),
    "refine": (
        *map(_trained, READ_BY),
        Reads(("checks",), lambda params, given: set(methods_of(params["methods"])) != {"baseline"},
              "the baseline is validated once, at its end"),
    ),
    "elc": (
        Reads(("initialisation",), _variants, "layer weights read it, and ltg has none"),
    ),
    "growth": (
        Reads(("run", "fresh", "alone", "extra", "checks"), _is_not("explain"), "--explain trains nothing"),
        Reads(("equal", "alone"), lambda params, given: params["schedule"] != "uniform",
              "it is read by a schedule other than uniform"),
    ),
    "wiring": (
        Reads(("rounds",), _given("keep", "tolerance"), "cutting reads it, and nothing is cut without --keep SHARE or "
              "--tolerance NATS"),
    ),
    "merge": (
        Reads(("images", "text", "validation", "test", "unreadable", "limit", "length", "run", "seed"),
              lambda params, given: params["draws"] is not None or not params["save"],
              "judging merged models reads it, and one is only written out; --draws N would judge some too"),
    ),
    "evaluate": (
        Reads(("data",), _suites("blimp", "supplement", "ewok", "glue", "msgs"),
              "published suites lie there, and none was asked for"),
        Reads(("password",), _suites("ewok", "file"), "EWoK's archive, or a file of pairs, is opened by it"),
        Reads(("temperature", "too_long", "fresh"), _suites(*PAIRS, "file"),
              "suites of pairs read it, and none was asked for"),
        Reads(("seeds",), _suites(*FINE_TUNED), f"fine-tuning reads it, and none of {_listed(FINE_TUNED)} was asked "
              "for"),
        Reads(("tokenizer", "revision", "trust_remote_code"), _no_run, _OF_A_RUN),
    ),
    "robustness": (
        Reads(("seeds",), lambda params, given: params["model"] == "demo-vit", "the trainings of demo-vit read it"),
        Reads(("tokenizer", "layers", "revision"), _no_run, _OF_A_RUN),
        Reads(("dtype",), lambda params, given: params["model"] != "demo-vit",
              "demo-vit's models are trained, and asked, in float32"),
    ),
    "report": (
        Reads(("to",), _is_not("text"), "--markdown prints, and writes no page"),
    ),
}  # fmt: skip
"""The options of each verb that only some of what can be asked reads."""
