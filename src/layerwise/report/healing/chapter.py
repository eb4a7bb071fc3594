"""The chapter of a healing: nats lost and regained in one picture, a table by task, and the curve of the windows."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.figures.dot_plot import Dots, dots
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.healing.lookup import ALL, HEALING, PRUNED, RANDOM, WHOLE, HealingScores
from layerwise.report.healing.tables import cost_table, healing_markdown, healing_sentences, rate_table, task_table
from layerwise.report.page.chapter import Chapter, Heading, card, folded, lead, legend, note, spaced
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.group import ChapterGroup
from layerwise.report.page.markup import element
from layerwise.report.page.number_format import between
from layerwise.report.quantity import scaled
from layerwise.report.series import Line
from layerwise.results.rows import Score

HEADING = Heading(HEALING, "What healing brings back", "Healing")
SLOTS = (0, 1, 2, 3, 7, 8, 9, 10, 11)
CONTROLS = {PRUNED: 5, WHOLE: 4, RANDOM: 6}
LOSS_PICTURE, WINDOW_PICTURE = "healing-nats", "healing-windows"


def healing(evidence: Evidence) -> Chapter:
    """What was lost and regained, by task; sentences; the curve of the windows; every number."""
    run = HealingScores.of(evidence.data.scores)
    if not run.arms:
        return HEADING.missing("No model was healed: layerwise heal does.")
    slots = {**dict(zip(run.healings, SLOTS, strict=False)), **CONTROLS}
    shown = {name: slots[name] for name in (PRUNED, *run.arms) if name in slots}
    nats = Picture(LOSS_PICTURE, "Nats a token above the untouched whole model", {(): _nats(run, shown)})
    pictures = [nats]
    body = [
        lead(
            "Layers are left out, and what is left is trained to make up for them. At the dotted line the pruned model "
            "is as good as the whole one was."
        ),
        legend(shown, (LOSS_PICTURE,), noun="Models"),
        card(nats.alternative, nats.html(), wide=True),
        note(
            "pruned: before healing, its interval over documents. whole: the whole model trained on the same tokens by "
            "their labels; what it gains is what the text gives, and is taken off the net share. random: random plans "
            "of the same size, healed as long; all shares are of what the plan that was asked for loses. Intervals of "
            "what was trained are over seeds, each a faint dot."
        ),
        element("ul", *(element("li", text) for text in healing_sentences(run)), class_="fates"),
        element("h3", "By task"),
        task_table(run).html(),
    ]
    if run.window("healed"):
        curve = Picture(WINDOW_PICTURE, "Middle layers skipped", {(): _windows(run, evidence.data.level)})
        pictures.append(curve)
        body += [
            spaced(card("Few layers skipped, and many", curve.html(), wide=True)),
            note(
                "Middle layers are skipped and the rest is healed as long each time; at 0 the whole model is trained. "
                "Below the dotted line the healed model is better than the untouched whole one."
            ),
        ]
    body += [folded("Learning rates", rate_table(run).html()), folded("Cost", cost_table(run).html())]
    return HEADING.chapter(body, pictures)


def _nats(run: HealingScores, shown: dict[str, int]) -> Figure:
    """A row for each task, in it a lane for each model."""
    arms = []
    for name, slot in shown.items():
        metric = "lost" if name == PRUNED else "above_whole"
        rows = {task: row for task in run.tasks if (row := run.score(name, task, metric)) is not None}
        seeds = {task: _above(run, name, task) for task in rows} if name != PRUNED else {}
        arms.append(Dots(name, slot, rows, seeds))
    return dots(arms, across="nats a token above the untouched whole model", reference=0.0, from_zero=True, signed=True)


def _above(run: HealingScores, arm: str, task: str) -> list[Score]:
    whole = run.score("untouched", task, "nll")
    if whole is None:
        return []
    return [
        Score(row.measure, row.subject, row.task, "above_whole", row.value - whole.value)
        for row in run.seeds(arm, task, "nll")
    ]


def _windows(run: HealingScores, level: float) -> Figure:
    lines = [Line("before healing", run.window("before"), 5), Line("healed", run.window("healed"), 0)]
    axis = "nats a token above the whole model"
    return lined(
        lines, across="middle layers skipped", upwards=axis, describe=hover_text("{} layers skipped", axis, level),
        height=400, reference=0.0, legend=True,
    )  # fmt: skip


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    run = HealingScores.of(evidence.data.scores)
    main = run.healings[0] if run.healings else None
    net = None if main is None else run.score(main, ALL, "net_share") or run.score(main, ALL, "regained_share")
    tiles = ((f"{len(run.arms):,}", "arms"),)
    return tiles if net is None else (*tiles, (f"{between(scaled(net, 100.0).value, None, None)} %", "regained"))


HEALED = ChapterGroup(
    HEALING,
    (healing,),
    (healing_markdown,),
    present=lambda evidence: any(score.measure == HEALING for score in evidence.data.scores),
    tiles=_tiles,
)
