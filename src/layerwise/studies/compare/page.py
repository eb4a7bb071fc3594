"""The page of `layerwise compare` for runs of several models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.derived.zones import SIMILARITIES, PlanZones, find_original_zones, mirror_pairs, read_similarities
from layerwise.page.finding import Finding, Verdict
from layerwise.page.formatting import (
    ABSENT,
    COUNT,
    DIFFERENCE,
    NATS_EXPLAINED,
    NUMBER,
    Format,
    format_count,
    join_words,
    label,
)
from layerwise.page.kind import Column, CustomTable, Kind, Part, Pivot, Section, Text, load_texts
from layerwise.page.kinds import judge_published
from layerwise.page.marks import Heat, Lines
from layerwise.page.table import Table
from layerwise.results import vocabulary
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ANY, CLAIM, COINCIDENCE, CURVE, DELTA, EVERY, LAYER, MODEL, SCORE_CURVE
from layerwise.studies.compare.over_depth import format_strategy, list_drawn_families, name_quantity, read_at_half
from layerwise.studies.compare.over_models import (
    COINCIDE,
    CURVES_OPEN,
    DIFFER,
    IT_HOLDS,
    IT_HOLDS_NOT,
    TOO_FEW,
    identify_model,
)

WORDS = load_texts("comparison")
CURVES = {"measure": (CURVE, SCORE_CURVE)}
VERDICTS = {
    **{verdict.value: verdict.style for verdict in Verdict if verdict is not Verdict.NOT_MEASURED},
    IT_HOLDS: "supported",
    IT_HOLDS_NOT: "contradicted",
}
SAME: dict[str, str] = {COINCIDE: "supported", DIFFER: "contradicted", CURVES_OPEN: "inconclusive"}
"""Badge of each verdict on a pair of curves."""
CHANGES = {"leave_one_out": "Skip one layer", "swap_adjacent": "Swap a layer with the next"}
ZONE = "zone"


def summarize(data: ReportData) -> str:
    standing = list_claims(data).where(against=PRESENT)
    count = len(standing.where(against=EVERY)) - len(standing.where(against=EVERY, metric=TOO_FEW))
    if not count:
        return f"No published finding was measured in two models or more. {NATS_EXPLAINED}"
    every, some = (len(standing.where(against=over, metric=IT_HOLDS)) for over in (EVERY, ANY))
    measured = format_count(count, "published finding")
    were = "was" if count == 1 else "were"
    return (
        f"{measured} {were} measured in two models or more: {every or 'none'} {'holds' if every == 1 else 'hold'} in"
        f" every model, and {some or 'none'} in at least one model. {NATS_EXPLAINED}"
    )


def list_differences(data: ReportData) -> Iterator[str]:
    manifests = [run.manifest for run in data.runs.values()]
    if len({each.get("corpus_hash") or each.get("corpus") for each in manifests}) > 1:
        yield WORDS["models/texts"]
    if len({each.get("tokens") for each in manifests}) > 1:
        yield WORDS["models/tokens"]
    models = {name: identify_model(name, run) for name, run in data.runs.items()}
    again = [name for name, model in models.items() if list(models.values()).count(model) > 1]
    if again:
        yield WORDS["models/again"].format(join_words(again))


def list_missing(data: ReportData) -> Iterator[str]:
    measured = {
        name: (*(record.family for record in run.swept), *run.rows.where(measure=vocabulary.DIAGNOSED).axis("measure"))
        for name, run in data.runs.items()
    }
    for what in dict.fromkeys(each for own in measured.values() for each in own):
        if without := [name for name, own in measured.items() if what not in own]:
            yield f"{label(what)}: missing in {join_words(without)}"


def list_claims(data: ReportData) -> Rows:
    """Return the verdicts on measured findings, starting with the paper that has the most findings."""
    rows = data.rows.where(measure=CLAIM)
    measured = {row.claim: row.paper for row in rows.where(variant=PRESENT) if row.metric != Verdict.NOT_MEASURED}
    most = Counter(measured.values())
    return Rows(sorted(rows.where(claim=tuple(measured)), key=lambda row: -most[row.paper]))


def list_verdicts(data: ReportData) -> Iterator[Score]:
    for row in list_claims(data):
        yield replace(row, variant=row.variant or f"in {row.against}?")


def _format_verdict(row: Score) -> str:
    few = f" ({row.value:.0f} of {row.models})" if row.against and row.value != row.models else ""
    return ABSENT if row.metric == TOO_FEW else f"{row.metric}{few}"


def describe_claim(rows: Rows) -> str:
    (every,), (some,), runs = (rows.where(against=over) for over in (EVERY, ANY, None))
    of = (
        "one model"
        if every.models == 1
        else "all models"
        if every.value == every.models
        else (f"{every.value:.0f} of {every.models} models")
    )
    if every.metric == TOO_FEW:
        return f"Measured in {of}, which is too few to compare."
    parts = [
        f"Measured in {of}. Verdict for every measured model: {every.metric}; for any measured model: {some.metric}."
    ]
    decided = Rows(row for row in runs if row.metric not in (Verdict.INCONCLUSIVE, Verdict.NOT_MEASURED))
    for left, words in (
        (1.0, "After correction over the models, it holds in {}."),
        (-1.0, "After correction over the models, it does not hold in {}."),
        (0.0, "In {}, it is decided only without this correction."),
    ):
        if kept := decided.where(value=left):
            parts.append(words.format(join_words(kept.axis("variant"))))
    return " ".join(parts)


def _make_number_table(data: ReportData) -> Table:
    body = []
    for question, own in list_claims(data).by("claim").items():
        body.append((str(question), "", "", describe_claim(own)))
        for name, finding in _find_findings(data, question).items():
            body.append((name, str(finding.verdict), finding.answer, finding.number or ABSENT))
    return Table(("question, and model", "verdict", "answer", "number"), tuple(body), numeric_from=4, badges=VERDICTS)


def _find_findings(data: ReportData, question: object) -> dict[str, Finding]:
    by_run = {name: {each.question: each for each in judge_published(run)} for name, run in data.runs.items()}
    return {name: own[str(question)] for name, own in by_run.items() if question in own}


def list_rules(data: ReportData) -> Iterator[str]:
    for question in list_claims(data).axis("claim"):
        finding = next(iter(_find_findings(data, question).values()))
        if finding.published is not None:
            yield f"{question} {finding.published.statement} ({finding.published.section}) Rule: {finding.rule}"


def _describe_absence(list_measured: Callable[[ReportData], Collection[str | None]], words: str) -> Text:
    def facts(data: ReportData) -> Iterator[str]:
        measured = list_measured(data)
        if without := [name for name in data.runs if name not in measured]:
            yield words.format(join_words(without))

    return Text(facts, terminal=False, small=True)


def list_curves(data: ReportData) -> Iterator[Score]:
    return (replace(row, metric=name_quantity(row), strategy=format_strategy(row)) for row in data.rows.where(**CURVES))


def list_coincidences(data: ReportData) -> Iterator[Score]:
    for row in data.rows.where(measure=COINCIDENCE):
        what = "loss" if row.task == vocabulary.ALL else f"{row.task} of the benchmarks"
        models = f"{row.variant} – {row.against}" if row.variant else "all"
        yield replace(row, task=f"Do the curves coincide? {what}", strategy=format_strategy(row), variant=models)


def list_curve_absences(data: ReportData) -> Iterator[str]:
    if rest := [label(family) for family, is_drawn in list_drawn_families(data.runs).items() if not is_drawn]:
        yield f"Shown only in the reports of the runs, because of many strategies: {join_words(rest)}."
    if not data.rows.where(measure=COINCIDENCE):
        alike = len({identify_model(name, run) for name, run in data.runs.items()}) == 1
        yield WORDS["curves/one" if alike else "curves/unscaled"]


def _draw_curves(data: ReportData) -> Iterator[Part]:
    shows: dict[str, Format] = {}
    for row in data.rows.where(**CURVES):
        share = NUMBER.replace(axis=name_quantity(row), reference=1.0 if row.measure == SCORE_CURVE else None)
        shows.setdefault(name_quantity(row), DIFFERENCE if row.metric == DELTA else share)
    first, show = next(iter(shows.items()))
    yield Lines(
        name="curves",
        derive=list_curves,
        series="variant",
        x="percent",
        each="strategy",
        words=str,
        choices={"Measure": "metric"},
        legend="Models",
        height=250,
        percent=True,
        sqrt_scale="default",
        at="{:.0f} % of the depth",
        by_choice={name: {"show": each} for name, each in shows.items()},
    )
    yield Pivot(
        name="half",
        title=f"With about half of the layers affected: {first}",
        rows={"strategy": "strategy"},
        across="variant",
        derive=lambda data: (replace(row, strategy=format_strategy(row)) for row in read_at_half(data)),
        show=lambda row: f"{show.text(row)} at {row.percent:.0f} %",
    )
    yield Pivot(
        name="same",
        derive=list_coincidences,
        split="task",
        rows={"strategy": "strategy", "models": "variant"},
        badges=SAME,
        columns=(
            Column("curves", text=lambda rows: rows[0].metric),
            Column("greatest difference", text=_select_paired(DIFFERENCE.text)),
            Column("at", text=_select_paired(lambda row: f"{row.percent:.0f} %")),
        ),
    )
    yield _describe_absence(lambda data: Rows(list_curves(data)).axis("variant"), "No curve was measured for {}.")
    yield Text(list_curve_absences, terminal=False, small=True)


def _select_paired(text: Callable[[Score], str]) -> Callable[[Rows], str]:
    return lambda rows: text(rows[0]) if rows[0].against else ABSENT


def list_layers(data: ReportData) -> Iterator[Score]:
    return (replace(row, family=CHANGES[str(row.family)]) for row in data.rows.where(measure=LAYER))


def list_similarities(data: ReportData) -> Iterator[Score]:
    for name, run in data.runs.items():
        for metric, words in SIMILARITIES.items():
            if read_similarities(run, metric) is not None:
                rows = run.rows.where(measure=vocabulary.SIMILARITY, metric=metric)
                yield from (replace(row, variant=name, condition=words) for row in mirror_pairs(rows))
                zones = find_original_zones(run)
                for first, last in zones.ranges if zones else ():
                    yield Score(ZONE, ZONE, 1.0, state=first, to_state=last, variant=name, condition=words)


def _draw_similarity(data: ReportData) -> Iterator[Part]:
    yield Heat(
        name="similarity",
        derive=list_similarities,
        each="variant",
        words=str,
        choices={"Similarity": "condition"},
        x="state",
        y="to_state",
        across="state",
        down="state",
        square=True,
        framed=ZONE,
        least=min(0.0, *(row.value for row in list_similarities(data))),
        most=1.0,
        height=330,
    )
    yield _describe_absence(
        lambda data: Rows(list_similarities(data)).axis("variant"), "Similarity was not measured in {}."
    )


def list_partitions(data: ReportData) -> dict[str, PlanZones]:
    every = {name: find_original_zones(run) for name, run in data.runs.items()}
    return {name: zones for name, zones in every.items() if zones is not None}


def _compute_partition(data: ReportData) -> Table:
    body = []
    for name, own in list_partitions(data).items():
        ranges = (f"{first - 1}–{last - 1}" if last > first else f"{last - 1}" for first, last in own.ranges)
        counts = (f"{count} ({100 * count / own.states:.0f} %)" for count in (own.beginning, own.middle, own.ending))
        body.append((name, f"{len(own.ranges)}", " | ".join(ranges), *counts, own.borders_in_words, own.shown_p))
    head = (
        "model",
        "zones",
        "layers of each zone",
        "beginning",
        "middle",
        "end",
        "contrast of the borders",
        "p (more zones)",
    )
    return Table(head, tuple(body), numeric_from=3)


def _list_tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    depths = sorted({run.depth for run in data.runs.values()})
    yield f"{len(data.runs)}", "models"
    yield (f"{depths[0]}" if len(depths) == 1 else f"{depths[0]} to {depths[-1]}"), "layers"


COMPARISON = Kind(
    name="comparison",
    measures=(MODEL,),
    answer=summarize,
    tiles=_list_tiles,
    sections=(
        Section(anchor="curves", needs=CURVES, parts=_draw_curves),
        Section(
            anchor="layers",
            needs={"measure": LAYER},
            parts=(
                Lines(
                    name="layers",
                    derive=list_layers,
                    series="variant",
                    x="percent",
                    words=str,
                    each="family",
                    choices={"Task": "task"},
                    apart=("task",),
                    legend="Models",
                    percent=True,
                    height=380,
                    across="relative depth of the layer",
                    at="at {:.0f} % of the depth",
                    show=DIFFERENCE,
                    sqrt_scale="default",
                ),
                _describe_absence(
                    lambda data: Rows(list_layers(data)).axis("variant"), "No single layer was changed in {}."
                ),
            ),
        ),
        Section(
            anchor="claims",
            needs=lambda data: bool(list_claims(data)),
            parts=(
                Pivot(
                    name="verdicts",
                    derive=list_verdicts,
                    split="paper",
                    rows={"question": "claim"},
                    across="variant",
                    show=_format_verdict,
                    badges=VERDICTS,
                ),
                CustomTable(name="numbers", table=_make_number_table, folded=True),
                Text(list_rules, name="rules", folded=True),
            ),
        ),
        Section(anchor="similarity", needs=lambda data: any(list_similarities(data)), parts=_draw_similarity),
        Section(
            anchor="zones",
            needs=lambda data: bool(list_partitions(data)),
            parts=(
                CustomTable(name="divided", table=_compute_partition),
                _describe_absence(
                    list_partitions, "Not divided, because there are fewer than 10 layers or too few states: {}."
                ),
            ),
        ),
        Section(
            anchor="models",
            needs={"measure": MODEL},
            parts=(
                Pivot(
                    where={"measure": MODEL},
                    rows={"model": "variant", "run": "condition", "text": "kind"},
                    columns=[Column(each, each, COUNT) for each in ("layers", "parameters", "documents", "tokens")],
                ),
                Text(list_differences, terminal=False, small=True),
                Text(list_missing, name="unlike", terminal=False),
            ),
        ),
    ),
)
