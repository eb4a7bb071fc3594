"""How soon a damaged layer recovers when it is trained again, against what it was worth and how hard it was hit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from layerwise.report.diagnosis.lookup import NULL, DiagnosisScores
from layerwise.report.diagnosis.panels import by_depth
from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.scatter import layer_scatter
from layerwise.report.page.chapter import Chapter, Heading, cards, lead, note
from layerwise.report.page.figure_slot import Choice, Picture, led, variants
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import between, tidy
from layerwise.report.page.table import Table

PANELS = {
    "area": ("Loss above the undamaged twin, summed over training", "nat-steps", 0),
    "steps": ("Steps to recover", "steps", 1),
    "steps_to_untouched": ("Steps back to the loss before damage, as published", "steps", 3),
    "initial_damage": ("Damage at the start", "nats per token", 2),
}
DAMAGES = {"noise_50": "noise of 50 %", "equal_damage": "equal damage", "reinitialise": "re-initialised"}
SCOPES = {"layer": "layer trained", "model": "model trained"}
HEADING = Heading("recovery", "How layers recover", "Recovery")


def recovery(evidence: Evidence) -> Chapter:
    """Three panels by depth for a damage to choose, the scatter against ablation, and the correlations in a table."""
    run = evidence.diagnosis
    kinds = _published_first(
        task for task in run.tasks("recovery") if any(run.layers("recovery", name, task) for name in PANELS)
    )
    if not kinds:
        return HEADING.missing("No layer was damaged and trained again in this run (recovery).")
    pictures = _panels(run, kinds)
    body: list[Safe] = [
        lead("A layer is damaged, then trained: how long until the model is as good as a twin that was never damaged?"),
        *(picture.controls() for picture in pictures.values()),
        cards(pictures, "grid pair"),
        note(
            "Open marks: in some runs the layer had not recovered at the last step, so the truth is at least that. The"
            " grey band is the undamaged twin, trained on the same text. The published count of steps is back to the"
            " loss of the model before it was damaged, which training alone may pass. Intervals are over seeds."
        ),
    ]
    rows = tuple(
        (_spoken(task), _correlation(run, "spearman", task), _correlation(run, "spearman_given_damage", task))
        for task in kinds
    )
    if any(cell != "–" for row in rows for cell in row[1:]):
        head = ("damage", "rank correlation with the effect of skipping", "with the initial damage held fixed")
        heavy = "Heavy damage takes longer to undo wherever it falls; only the last column speaks of the layer."
        body += [element("h3", "Does recovery follow importance?"), Table(head, rows).html(), note(heavy)]
    return HEADING.chapter(tuple(body), tuple(pictures.values()))


def _panels(run: DiagnosisScores, kinds: tuple[str, ...]) -> dict[str, Picture]:
    choice = (Choice("Damage", tuple(_spoken(task) for task in kinds)),)
    skip = run.layers("ablation", "skip")

    def panel(metric: str, task: str) -> Figure | None:
        title, unit, slot = PANELS[metric]
        initial = metric == "initial_damage"
        kind = "censored_untouched" if metric == "steps_to_untouched" else "censored"
        hollow: frozenset[float] = frozenset() if initial else _censored(run, task, kind)
        upwards = DELTA_AXIS if initial else unit
        return by_depth(
            run,
            "recovery",
            metric,
            title,
            slot,
            task=task,
            unit=unit,
            hollow=hollow,
            upwards=upwards,
            height=330,
        )

    def against_skip(task: str) -> Figure | None:
        area = run.layers("recovery", "area", task)
        hollow = frozenset(int(layer) for layer in _censored(run, task))
        titles = ("Δ NLL of skipping", "area, nat-steps")
        if not skip or not area:
            return None
        return layer_scatter(skip, area, titles=titles, depth=run.depth, hollow=hollow, height=330)

    figures = {
        title: (f"recovery-{metric}", variants(kinds, partial(panel, metric)))
        for metric, (title, _, _) in PANELS.items()
    }
    figures["Recovery against the effect of skipping"] = ("recovery-ablation", variants(kinds, against_skip))
    return led({title: Picture(name, f"{title}, by layer", drawn, choice) for title, (name, drawn) in figures.items()})


def _censored(run: DiagnosisScores, task: str, kind: str = "censored") -> frozenset[float]:
    return frozenset(layer for layer, score in run.layers("recovery", kind, task).items() if score.value > 0.0)


def _correlation(run: DiagnosisScores, metric: str, task: str) -> str:
    """A correlation with its interval, or with the band that shuffled layers give where that is its measure."""
    score = run.score("recovery", "ablation", metric, task)
    if score is None:
        return "–"
    chance = run.score("recovery", "ablation", f"{metric}{NULL}shuffled_layers", task)
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
