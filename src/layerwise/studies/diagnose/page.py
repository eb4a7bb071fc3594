"""A diagnosis: what each layer is worth, and what explains it: every measure by layer, with its nulls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from layerwise.page.claims.claim import needed
from layerwise.page.data import ReportData, concluded, skipped
from layerwise.page.kind import Column, Kind, Pivot, Says, Section, opening
from layerwise.page.marks import Bars, Heat, Lines
from layerwise.page.show import BARE, COUNT, DIFFERENCE, PERCENT, SIGNED, Show, adjusted_p, named
from layerwise.page.text.number_format import fixed, in_perplexity, tidy
from layerwise.page.text.wording import counted, incomplete, label, listed, null_name, sentence
from layerwise.plan import Plan
from layerwise.plan.edits import skip
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT
from layerwise.studies.diagnose.page_changes import MANIPULATION_SECTION, PROXIES_SECTION, RECOVERY_SECTION
from layerwise.studies.diagnose.page_weights import DELTAS_SECTION, PREDICTION_SECTION, STRUCTURE_SECTION

WORDS = {"matters": "matters", "no_effect": "without effect", "harmful": "harmful", "unresolved": "inconclusive"}
VERDICT_SLOTS = {"matters": 2, "harmful": 1, "unresolved": 4, "no_effect": 8, vocab.SKIPPING: 0}
"""The colors of verdicts, which are those of the badges on every page."""
SILENCED = {vocab.SKIPPING: "skipped", "mean_ablate": "mean of its output"}
REPLACED = {
    "neighbour_copy": "copy of a neighbour",
    "neighbour_average": "mean of neighbours",
    "random": "random weights",
}
INTERVENTIONS = {**SILENCED, **REPLACED}
INTERVENTION_SLOTS = {name: at for at, name in enumerate(INTERVENTIONS)}
SILENCED_PARTS = {None: "Whole layer silenced", "attn": "Attention alone silenced", "mlp": "MLP alone silenced"}
BESIDE: dict[str, dict[str, Any]] = {
    "attention": {"measure": vocab.ABLATION, "metric": vocab.SKIPPING, "part": "attn"},
    "MLP": {"measure": vocab.ABLATION, "metric": vocab.SKIPPING, "part": "mlp"},
    "Block Influence": {"measure": vocab.PROXIES, "metric": "block_influence", "part": None},
    "R² held out": {"measure": vocab.PREDICTABILITY, "metric": "heldout_rows_r2", "other": None, "part": None},
}
"""What stands beside the worth of a layer, by its heading."""
RACED = {
    "evaluations": ("layer evaluations spent", COUNT),
    "evaluations_full": ("of a full sweep", COUNT),
    "share": ("share of the full sweep", PERCENT),
    "looks": ("looks at the rows", COUNT),
}


def worth(data: ReportData) -> dict[int, Score]:
    return dict(sorted((skipped(data.rows) | concluded(data.rows)).items()))


def in_words(row: Score, margin: float | None = None) -> str:
    """A verdict as it is read, with what stands behind it: what was excluded, or what could have been seen.

    >>> in_words(Score("verdict", "no_effect", 0.001, layer=3, mde=0.008))
    'no effect above 0.00800 nats'
    >>> in_words(Score("verdict", "unresolved", 0.01, layer=3, mde=0.05, tokens=1000), margin=0.01)
    'inconclusive below 0.0500 nats; about 34,000 tokens would decide'
    """
    if row.mde is None or row.metric not in ("no_effect", "unresolved"):
        return WORDS.get(row.metric, "")
    limit = tidy(row.mde)
    if row.metric == "no_effect":
        return f"no effect above {limit} nats"
    return f"inconclusive below {limit} nats{needed(row, margin) if margin is not None else ''}"


def layers(data: ReportData) -> Iterator[Score]:
    margin = _margin(data)
    for layer, row in worth(data).items():
        yield replace(row, measure=vocab.VERDICT, metric="worth", condition=in_words(row, margin))
        for head, source in BESIDE.items():
            own = data.rows.one(layer=layer, task=vocab.ALL, against=None, **source)
            if own is not None:
                yield replace(own, measure=vocab.VERDICT, metric=head, part=None)


def _margin(data: ReportData) -> float | None:
    return data.rows.value(measure=vocab.VERDICT, metric=vocab.MARGIN)


def summary(data: ReportData) -> Iterator[str]:
    known, rows = concluded(data.rows), worth(data)
    layers = {name: [str(layer) for layer, row in known.items() if row.metric == name] for name in vocab.DECISIONS}
    clauses = [
        f"{_named(of, len(known))} {_does(name, len(of))}" for name, of in layers.items() if of and name != "unresolved"
    ]
    if short := len(layers["unresolved"]):
        others = f"the other {short}" if short < len(known) else f"all {counted(short, 'layer')}"
        clauses.append(f"for {others} the text is too short to tell")
    if clauses:
        yield sentence("; ".join(clauses))
    if rows:
        most, row = max(rows.items(), key=lambda item: item[1].value)
        if row.low is not None and row.low > 0.0:
            yield f"Layer {most} is the most important: without it the loss rises by {SIGNED.text(row)} nats per token."
        else:
            yield f"No layer is shown to matter; the largest effect is {SIGNED.text(row)} nats per token ({most})."


def _named(layers: Sequence[str], depth: int) -> str:
    if len(layers) == depth:
        return f"all {counted(depth, 'layer')}"
    return f"layer{'s' * (len(layers) > 1)} {listed(layers)}"


def _does(decision: str, layers: int) -> str:
    if decision == "matters":
        return "matters" if layers == 1 else "matter"
    return f"{'is' if layers == 1 else 'are'} {WORDS[decision]}"


def margin_in_words(data: ReportData) -> Iterator[str]:
    margin = _margin(data)
    counts = "the margin" if margin is None else f"±{margin:g} nats per token, the margin that was stated beforehand"
    if concluded(data.rows):
        yield f"“Without effect” is shown: the interval lies inside {counts}."


def next_steps(data: ReportData) -> Iterator[str]:
    """The plan without the layers that are not worth anything, to be measured as a whole; or how much text to give."""
    known = concluded(data.rows)
    useless = [layer for layer, row in known.items() if row.metric in ("no_effect", "harmful")]
    model = data.manifest.get("model") or "MODEL"
    if useless and len(useless) < data.depth:
        plan = skip(Plan.identity(data.depth), *useless)
        yield (
            f"Next: costs of single layers do not add up, so measure without {listed(list(map(str, useless)))}:"
            f' layerwise sweep {model} --text PATH --plan "{plan}"'
        )
    elif known and all(row.metric == "unresolved" for row in known.values()):
        yield f"Next: no layer is decided; give more text: layerwise diagnose {model} --text PATH --parts ablation"


def silenced(data: ReportData) -> Iterator[Score]:
    """The effects of silencing, the half of the layer in words; of the nulls that of skipping stands for all."""
    rows = data.rows.where(measure=vocab.ABLATION, metric=tuple(SILENCED))
    for part, words in SILENCED_PARTS.items():
        own = rows.where(part=part)
        yield from (replace(row, part=words) for row in own.where(against=None))
        yield from (replace(row, part=words) for row in own.where(against=vocab.NO_EFFECT, metric=vocab.SKIPPING))


def replaced(data: ReportData) -> Iterator[Score]:
    rows = data.rows.where(measure=vocab.ABLATION, part=None)
    effects = rows.where(metric=tuple(REPLACED), against=None)
    yield from effects
    if effects:
        yield from rows.where(metric=vocab.SKIPPING, against=vocab.NO_EFFECT)


def every_intervention(data: ReportData) -> Iterator[Score]:
    rows = data.rows.where(measure=vocab.ABLATION, task=vocab.ALL, against=None, layer=PRESENT)
    for part in (None, "attn", "mlp"):
        # What skipping a whole layer costs is in the first table, with the interval that decides.
        for row in (row for row in rows.where(part=part) if part or row.metric != vocab.SKIPPING):
            words = label(row.metric) if part is None else f"{label(row.metric)}, {part}"
            yield replace(row, part=None, condition=words)


def _raced(data: ReportData) -> Iterator[str]:
    rows = data.rows.where(measure=vocab.RACING, layer=None)
    facts = [
        f"{words}: {show.number(value)}"
        for metric, (words, show) in RACED.items()
        if (value := rows.value(metric=metric)) is not None
    ]
    if facts:
        yield f"{'; '.join(facts).capitalize()}."


def agreements(data: ReportData) -> Iterator[Score]:
    rows = data.rows.where(measure=vocab.AGREEMENT)
    for row in sorted(rows, key=lambda each: each.against == vocab.RANDOM_SCORE):
        yield row
        yield replace(row, arm=row.against, against=row.arm)


def _agreement(row: Score) -> str:
    """Format a cell: in brackets if the interval includes zero; a random score with its chance range."""
    if vocab.RANDOM_SCORE in (row.arm, row.against) and row.high is not None:
        return f"±{fixed(row.high, 2)}"
    holds_zero = row.low is not None and row.high is not None and row.low <= 0.0 <= row.high
    return f"({fixed(row.value, 2)})" if holds_zero else fixed(row.value, 2)


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    yield f"{len(data.rows.where(measure=vocab.DIAGNOSED)):,}", "scores"
    tasks = [task for task in data.rows.where(measure=vocab.ABLATION).axis("task") if task != vocab.ALL]
    if tasks:
        yield f"{len(tasks):,}", "tasks"


def _unfinished(data: ReportData) -> str | None:
    """List the parts of the run that are not complete; without a run directory a measure with any row is complete."""
    families = data.manifest.get("families")
    names = [str(name) for name in families] if isinstance(families, list | tuple) else []
    complete = set(data.rows.where(measure="part").axis("condition"))
    finished = complete or data.rows.where(measure=vocab.DIAGNOSED).axis("measure")
    waiting = [name for name in names if name in vocab.DIAGNOSED and name not in finished]
    return incomplete((waiting, "part of this diagnosis")) if waiting else None


DIAGNOSIS = Kind(
    name="diagnosis",
    measures=vocab.DIAGNOSED,
    answer=opening(summary, None),
    tiles=_tiles,
    unfinished=_unfinished,
    counts=("documents", "tokens", "window"),
    following=next_steps,
    claims=True,
    sections=(
        Section(
            anchor="verdicts",
            needs=lambda data: bool(worth(data)),
            parts=(
                Bars(
                    name="layers",
                    show=DIFFERENCE,
                    derive=lambda data: worth(data).values(),
                    series="metric",
                    stacked=True,
                    slots=VERDICT_SLOTS,
                    words=lambda name: WORDS.get(name, "skipped"),
                    rooted=True,
                    bent=True,
                ),
                Pivot(
                    derive=layers,
                    rows={"layer": "layer"},
                    terminal=7,
                    note="worth",
                    columns=(
                        Column("Δ NLL without it", "worth", SIGNED),
                        Column("verdict", text=lambda rows: next(iter(rows.axis("condition")), "")),
                        Column("attention", "attention", SIGNED.but(bounds=False)),
                        Column("MLP", "MLP", SIGNED.but(bounds=False)),
                        Column("Block Influence", "Block Influence", BARE),
                        Column("R² held out", "R² held out", BARE),
                        Column("perplexity", "worth", lambda row: in_perplexity(row.value)),
                        Column("adjusted p", "worth", adjusted_p),
                    ),
                ),
                Says(margin_in_words, terminal=False),
            ),
        ),
        Section(
            anchor=vocab.ABLATION,
            needs={"measure": vocab.ABLATION, "layer": PRESENT},
            parts=(
                Lines(
                    name="ablation-silenced",
                    derive=silenced,
                    series="metric",
                    each="part",
                    choices={"Task": "task"},
                    nulls=null_name,
                    show=DIFFERENCE,
                    slots=INTERVENTION_SLOTS,
                    height=260,
                    words=named(INTERVENTIONS),
                    legend="Interventions",
                    nats=True,
                    rooted=True,
                    bent=True,
                ),
                Lines(
                    name="ablation-replaced",
                    derive=replaced,
                    series="metric",
                    choices={"Task": "task"},
                    nulls=null_name,
                    show=DIFFERENCE,
                    slots={name: INTERVENTION_SLOTS[name] for name in REPLACED},
                    words=named(INTERVENTIONS),
                    legend="Interventions",
                    height=330,
                    nats=True,
                    rooted=True,
                    bent=True,
                ),
                Pivot(
                    name="every-intervention",
                    derive=every_intervention,
                    rows={"layer": "layer"},
                    words=str,
                    across="condition",
                    show=SIGNED,
                    folded=True,
                    terminal=False,
                    order=lambda line: line[0],
                ),
            ),
        ),
        Section(
            anchor=vocab.RACING,
            needs={"measure": vocab.RACING, "metric": vocab.DECISIONS},
            parts=(
                Bars(
                    name="racing",
                    of=lambda row: float(row.tokens) if row.tokens else None,
                    where={"measure": vocab.RACING, "metric": vocab.DECISIONS},
                    series="metric",
                    stacked=True,
                    slots=VERDICT_SLOTS,
                    words=lambda name: WORDS[name],
                    show=Show(axis="tokens spent"),
                    height=320,
                ),
                Says(_raced, terminal=False),
            ),
        ),
        DELTAS_SECTION,
        PREDICTION_SECTION,
        RECOVERY_SECTION,
        MANIPULATION_SECTION,
        STRUCTURE_SECTION,
        PROXIES_SECTION,
        Section(
            anchor=vocab.AGREEMENT,
            parts=(
                Heat(
                    name="agreement",
                    derive=agreements,
                    x="arm",
                    y="against",
                    diverging=True,
                    most=1.0,
                    across="",
                    cell_words=lambda name: label(str(name)),
                    numbers=True,
                    number=_agreement,
                    words=str,
                ),
            ),
        ),
    ),
)
