"""How soon a damaged layer recovers when it is trained again, against what it was worth and how hard it was hit."""

from __future__ import annotations

from collections.abc import Iterable

from layerwise.report.chapters.chapter import Chapter, card, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import NULL, Diagnosis
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.lines import lined, telling
from layerwise.report.figures.scatter import scattered
from layerwise.report.markup import Safe, element
from layerwise.report.notation import between, tidy
from layerwise.report.picture import Choice, Picture
from layerwise.report.series import Line, layer_bands
from layerwise.report.table import simple_table

PANELS = {
    "area": ("Loss above the undamaged twin, summed over training", "nat-steps", 0),
    "steps": ("Steps to recover", "steps", 1),
    "initial_damage": ("Damage at the start", "nats per token", 2),
}
DAMAGES = {"noise_50": "noise of 50 %", "equal_damage": "equal damage", "reinitialise": "re-initialised"}
SCOPES = {"layer": "layer trained", "model": "model trained"}


def recovery(evidence: Evidence) -> Chapter:
    """Three panels by depth for a damage to choose, the scatter against ablation, and the correlations in a table."""
    title, short = "How layers recover", "Recovery"
    found = evidence.diagnosis
    kinds = _published_first(
        task for task in found.tasks("recovery") if any(found.layers("recovery", name, task) for name in PANELS)
    )
    if not kinds:
        return Chapter(
            "recovery", title, short, (missing("No layer was damaged and trained again in this run (recovery)."),)
        )
    pictures = _panels(found, kinds)
    body: list[Safe] = [
        lead("A layer is damaged, then trained: how long until the model is as good as a twin that was never damaged?"),
        *(picture.controls() for picture in pictures.values()),
        element("div", *(card(name, picture.html()) for name, picture in pictures.items()), class_="grid pair"),
        note(
            "Open marks: in some runs the layer had not recovered at the last step, so the truth is at least that. The"
            " grey band is the undamaged twin, trained on the same text. Intervals are over seeds."
        ),
    ]
    rows = [
        (_spoken(task), _correlation(found, "spearman", task), _correlation(found, "spearman_given_damage", task))
        for task in kinds
    ]
    if any(cell != "–" for row in rows for cell in row[1:]):
        head = ("damage", "rank correlation with the effect of skipping", "with the initial damage held fixed")
        body += [element("h3", "Does recovery follow importance?"), simple_table(head, rows)]
        body.append(
            note("Heavy damage takes longer to undo wherever it falls; only the last column speaks of the layer.")
        )
    return Chapter("recovery", title, short, tuple(body), tuple(pictures.values()))


def _panels(found: Diagnosis, kinds: tuple[str, ...]) -> dict[str, Picture]:
    choice = (Choice("Damage", tuple(_spoken(task) for task in kinds)),)
    pictures: dict[str, Picture] = {}
    for metric, (title, unit, slot) in PANELS.items():
        variants: dict[tuple[int, ...], Figure] = {
            (at,): _by_depth(found, metric, task, title, unit, slot)
            for at, task in enumerate(kinds)
            if found.layers("recovery", metric, task)
        }
        _add(pictures, title, f"recovery-{metric}", variants, choice)
    skip = found.layers("ablation", "skip")
    scatters: dict[tuple[int, ...], Figure] = {
        (at,): scattered(
            skip,
            found.layers("recovery", "area", task),
            titles=("Δ NLL of skipping", "area, nat-steps"),
            depth=found.depth,
            hollow=frozenset(int(layer) for layer in _censored(found, task)),
            height=330,
        )
        for at, task in enumerate(kinds)
        if skip and found.layers("recovery", "area", task)
    }
    _add(pictures, "Recovery against the effect of skipping", "recovery-ablation", scatters, choice)
    return pictures


def _add(
    pictures: dict[str, Picture],
    title: str,
    name: str,
    variants: dict[tuple[int, ...], Figure],
    choice: tuple[Choice, ...],
) -> None:
    if variants:
        leader = next(iter(pictures.values())).name if pictures else None
        pictures[title] = Picture(name, f"{title}, by layer", variants, choice, leader=leader)


def _by_depth(found: Diagnosis, metric: str, task: str, title: str, unit: str, slot: int) -> Figure:
    line = Line(
        title,
        found.layers("recovery", metric, task),
        slot,
        _censored(found, task) if metric != "initial_damage" else frozenset(),
    )
    upwards = DELTA_AXIS if metric == "initial_damage" else unit
    bands = layer_bands(found, "recovery", metric, task)
    return lined(
        [line], bands, across="layer", upwards=upwards, tell=telling("layer {}", unit, found.level), height=330
    )


def _censored(found: Diagnosis, task: str) -> frozenset[float]:
    return frozenset(layer for layer, score in found.layers("recovery", "censored", task).items() if score.value > 0.0)


def _correlation(found: Diagnosis, metric: str, task: str) -> str:
    """A correlation with its interval, or with the band that shuffled layers give where that is its measure."""
    score = found.score("recovery", "ablation", metric, task)
    if score is None:
        return "–"
    chance = found.score("recovery", "ablation", f"{metric}{NULL}shuffled_layers", task)
    if score.low is None and chance is not None and chance.low is not None and chance.high is not None:
        return f"{tidy(score.value, signed=True)} [by chance {tidy(chance.low)} to {tidy(chance.high)}]"
    return between(score.value, score.low, score.high, signed=True)


def _published_first(tasks: Iterable[str]) -> tuple[str, ...]:
    """Damages in the order of `DAMAGES`, which begins with the published one; unknown ones last."""
    order = list(DAMAGES)
    return tuple(
        sorted(tasks, key=lambda task: order.index(name) if (name := task.partition("/")[0]) in order else len(order))
    )


def _spoken(task: str) -> str:
    """`noise_50/layer` as words."""
    damage, _, scope = task.partition("/")
    return ", ".join([DAMAGES.get(damage, damage), *([SCOPES.get(scope, scope)] if scope else [])])
