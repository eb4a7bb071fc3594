"""The page of `layerwise train elc`: results of the variants, layer weights, agreement of seeds, stability and cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from layerwise.page.data import ReportData
from layerwise.page.finding import Finding, to_verdict
from layerwise.page.formatting import (
    ABSENT,
    ACCURACY,
    COUNT,
    NUMBER,
    SIGNED,
    Format,
    format_adjusted_p,
    format_count,
    format_fixed,
    format_p,
    is_resolved,
    join_words,
    to_sentence,
)
from layerwise.page.kind import Column, Kind, Pivot, Section, SideBySide, Text, join_statements, load_texts
from layerwise.page.marks import Dots
from layerwise.page.sections.layer_weights import RIGHT, WEIGHTS, list_scores, suite_findings
from layerwise.page.sections.training import TRAINING_SECTION, describe_unfinished
from layerwise.page.trained import (
    LOSS,
    THREE,
    add_ratios,
    add_seeds,
    average_by_variant,
    find_baseline,
    format_suite,
    list_seeds,
    list_suites,
    list_variants,
    make_cost_columns,
    make_tiles,
)
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT
from layerwise.studies.train_elc.page_compared import COMPARED, DYNAMICS, difference_findings

MARGIN = 0.05
"""Maximum distance from uniform weights at which a layer counts as uniform."""

DISTANCE = Format(axis="distance from equal shares")

COSTS: Mapping[str, tuple[str, float]] = {
    "parameters": ("parameters", 1.0),
    "tokens": ("tokens", 1.0),
    "seconds": ("training (s)", 1.0),
    "step_seconds": ("step (s)", 1.0),
    "peak_bytes": ("peak (MiB)", 2.0**-20),
    "latency_seconds": ("pass (ms)", 1000.0),
    "weight_bytes": ("weights (MiB)", 2.0**-20),
    "state_bytes": ("states (MiB)", 2.0**-20),
    "activation_bytes": ("activations (MiB)", 2.0**-20),
    "allocated_bytes": ("pass peak (MiB)", 2.0**-20),
}
LIKE = {
    ("correlation", None): ("Do seeds agree on the layer weights?", "as they are"),
    ("correlation", vocab.BEYOND_START): ("Do seeds agree beyond their common start?", "beyond the start"),
    ("contrast", None): ("Do surface and linguistic layers form groups?", "as they are"),
    ("contrast", vocab.BEYOND_DISTANCE): ("Do layers form groups beyond the effect of distance?", "beyond distance"),
}
"""Maps metric and condition to a question about the agreement of seeds, and to its label in the figure."""
AGREED = {"correlation": "mean rank correlation of two seeds", "contrast": "weight, in multiples of a uniform row's"}
UNIFORM = {True: "uniform", False: "not uniform", None: "inconclusive"}


def held_out_findings(data: ReportData) -> Iterator[Finding]:
    ranked = sorted(average_by_variant(data.rows.where(measure=vocab.MASKED_LM)), key=lambda row: row.value)
    if ranked:
        known = True if all(row.low is not None for row in ranked) else None
        answer = f"Held-out loss in nats per masked token: {list_scores(ranked, LOSS)}."
        yield Finding("What is the held-out loss?", answer, to_verdict(known))


def _answer_findings(data: ReportData) -> Iterator[Finding]:
    yield from difference_findings(data)
    yield from outcome_findings(data)


def outcome_findings(data: ReportData) -> Iterator[Finding]:
    yield from held_out_findings(data)
    yield from suite_findings(data)


def _losses(data: ReportData) -> Iterator[Score]:
    return add_seeds(data.rows.where(measure=vocab.MASKED_LM))


def _first_suite(data: ReportData) -> Iterator[Score]:
    return add_seeds(data.rows.where(measure=list_suites(data)[:1], metric="accuracy", task=vocab.ALL))


def derive_outcomes(data: ReportData) -> Iterator[Score]:
    columns = {"metric": "accuracy", "task": vocab.ALL}
    losses = average_by_variant(data.rows.where(measure=vocab.MASKED_LM))
    rows = losses + (
        row for suite in list_suites(data) for row in average_by_variant(data.rows.where(measure=suite, **columns))
    )
    for variant in list_variants(data):
        results = rows.where(variant=variant)
        if results and list_seeds(data, variant):
            yield Score("seeds", "seeds", float(len(list_seeds(data, variant))), variant=variant)
        yield from (replace(row, metric=row.measure) for row in results)


def _outcome_columns(data: ReportData) -> tuple[Column, ...]:
    suite_columns = (Column(format_suite(suite), suite, ACCURACY) for suite in list_suites(data))
    return (Column("seeds", "seeds", COUNT), Column("held-out loss (nats)", vocab.MASKED_LM, LOSS), *suite_columns)


def label_readers(rows: Iterable[Score]) -> Iterator[Score]:
    for row in rows:
        if row.layer is not None or row.part is not None:
            yield replace(row, task="the output" if row.part == vocab.OUTPUT else f"layer {row.layer}")


def derive_agreement(data: ReportData) -> Iterator[Score]:
    """Yield the agreement of the layer weights of every variant's seeds, and the agreement of shuffled weights."""
    for row in data.rows.where(measure=vocab.SEED_AGREEMENT, against=(None, vocab.SHUFFLED)):
        named = f"{row.variant}, {LIKE[row.metric, row.condition][1]}"
        yield replace(row, task=named, variant=row.against or row.variant, against=None)


def agreement_findings(data: ReportData) -> Iterator[Finding]:
    for (metric, condition), (question, _) in LIKE.items():
        rows = data.rows.where(measure=vocab.SEED_AGREEMENT, metric=metric, condition=condition, against=None)
        sides: dict[str, list[str]] = {"More than by chance": [], "Not distinguishable from chance": []}
        more, unclear = sides.values()
        for row in rows:
            side = more if is_resolved(row, data.level) else unclear
            side.append(f"{row.variant} ({metric} {SIGNED.number(row.value)}, p {format_p(row)})")
        if more or unclear:
            answer = " ".join(f"{words}: {', '.join(variants)}." for words, variants in sides.items() if variants)
            yield Finding(question, answer, to_verdict(not unclear))


def is_uniform(distance: Score) -> bool | None:
    if distance.low is None or distance.high is None:
        return None
    return True if distance.high < MARGIN else False if distance.low > MARGIN else None


def stability_findings(data: ReportData) -> Iterator[Finding]:
    distances = data.rows.where(measure=vocab.UNIFORMITY, metric="distance", layer=None, part=None)
    if distances:
        sides: dict[bool | None, list[str]] = {True: [], False: [], None: []}
        for row in distances:
            sides[is_uniform(row)].append(_describe_uniformity(data, row))
        answer = " ".join(
            to_sentence(f"{UNIFORM[side]}: {', '.join(variants)}") for side, variants in sides.items() if variants
        )
        yield Finding("Are the layer weights uniform?", answer, to_verdict(not sides[None]))
    spikes, (spreads, is_decided) = _describe_spikes(data), _describe_spreads(data)
    if spikes or spreads:
        answer = " ".join(filter(None, (spikes, spreads)))
        yield Finding("Was training stable?", answer, to_verdict(is_decided))


def _describe_uniformity(data: ReportData, distance: Score) -> str:
    rows = data.rows.where(measure=vocab.UNIFORMITY, variant=distance.variant)
    start = rows.one(metric="start", layer=None, part=None)
    before = "" if start is None else f", before training {format_fixed(start.value, 3)}"
    return f"{distance.variant} (distance {NUMBER.text(distance)}{before})"


def _describe_spikes(data: ReportData) -> str:
    """Count the training runs with a loss spike. The result is empty if no run has enough log entries."""
    run = data.rows.where(measure=vocab.STABILITY)
    variants = run.where(metric="spiked", seed=None).axis("variant")
    spikes = [row for row in run.where(metric="spikes", seed=PRESENT) if row.variant in variants]
    unstable = [f"{row.variant}/{row.seed}" for row in spikes if row.value > 0]
    if not spikes:
        return ""
    names = f" ({join_words(unstable)})" if unstable else ""
    return f"{len(unstable)} of {format_count(len(spikes), 'training run')} had a spike{names}."


def _describe_spreads(data: ReportData) -> tuple[str, bool]:
    """Compare the spread over seeds with that of the backbone. The flag is true if every ratio differs from 1."""
    ratios = data.rows.where(measure=vocab.STABILITY, metric="spread_ratio", seed=None)
    if not ratios:
        return "", True
    known = [row for row in ratios if is_resolved(row, data.level)]
    base = find_baseline(data) or "the backbone"
    different = [
        f"{'larger' if row.value > 1 else 'smaller'} for {row.variant} (p {format_adjusted_p(row)})" for row in known
    ]
    if not different:
        return f"The spread over seeds is not distinguishable from that of {base} for any variant.", False
    return f"Compared with {base}, the spread over seeds is {join_words(different)}.", len(known) == len(ratios)


def _every_reader(data: ReportData) -> Iterator[Score]:
    for own in data.rows.where(measure=vocab.UNIFORMITY).by("variant").values():
        yield from own.where(layer=None, part=None)
        yield from label_readers(own)


def derive_costs(data: ReportData) -> Iterator[Score]:
    rows = average_by_variant(data.rows.where(measure=vocab.TRAINING, metric=tuple(COSTS), step=None))
    base = rows.where(variant=find_baseline(data)).along("metric") if find_baseline(data) else {}
    yield from add_ratios(rows, {metric: row for metric, row in base.items() if metric != "tokens"})


def cost_notes(data: ReportData) -> Iterator[str]:
    against = find_baseline(data)
    if against:
        yield f"Numbers in brackets are relative to {against}."
    if data.rows.where(measure=vocab.TRAINING, metric="state_bytes"):
        yield load_texts("pretraining")["costs/counted"]


def _suggest_next(data: ReportData) -> Iterator[str]:
    if not any(suite != vocab.PAIRS for suite in list_suites(data)) and not data.rows.where(measure=vocab.FINE_TUNED):
        yield "Evaluate the models on published suites: layerwise evaluate RUN --suite blimp,glue --data FOLDER"


BY_VARIANT: Mapping[str, Any] = {"series": "variant", "known_series": list_variants, "words": str}

PRETRAINING = Kind(
    name="pretraining",
    rank=5,
    measures=(vocab.STUDY, vocab.MASKED_LM, vocab.SEED_AGREEMENT),
    has_published=True,
    tiles=make_tiles,
    unfinished=describe_unfinished,
    following=_suggest_next,
    answer=join_statements(_answer_findings),
    sections=(
        COMPARED,
        DYNAMICS,
        Section(
            anchor=vocab.MASKED_LM,
            needs=lambda data: bool(data.rows.where(measure=vocab.MASKED_LM) or list_suites(data)),
            parts=lambda data: (
                SideBySide(
                    (
                        Dots(name="held-out", derive=_losses, y="variant", show=LOSS, **BY_VARIANT),
                        Dots(
                            name="outcome-pairs",
                            title="".join(map(format_suite, list_suites(data)[:1])),
                            y="variant",
                            derive=_first_suite,
                            show=RIGHT,
                            **BY_VARIANT,
                        ),
                    )
                ),
                Text(outcome_findings),
                Pivot(
                    name="numbers",
                    derive=derive_outcomes,
                    rows={"variant": "variant"},
                    columns=_outcome_columns(data),
                    folded=True,
                    terminal=True,
                ),
            ),
        ),
        WEIGHTS,
        Section(
            anchor=vocab.SEED_AGREEMENT,
            parts=(
                SideBySide(
                    tuple(
                        Dots(
                            name=f"seed-agreement-{metric}",
                            derive=derive_agreement,
                            where={"metric": metric},
                            legend="Variants",
                            show=Format(axis=axis),
                            **BY_VARIANT,
                        )
                        for metric, axis in AGREED.items()
                    )
                ),
                Text(agreement_findings, note="null"),
            ),
        ),
        Section(
            anchor="stability",
            needs={"measure": (vocab.UNIFORMITY, vocab.STABILITY)},
            parts=(
                Dots(
                    name="uniformity",
                    derive=lambda data: label_readers(data.rows.where(measure=vocab.UNIFORMITY)),
                    where={"metric": "distance"},
                    legend="Variants",
                    show=DISTANCE,
                    from_zero=True,
                    allowed=(0.0, MARGIN),
                    **BY_VARIANT,
                ),
                Text(stability_findings),
                Pivot(
                    name="readers",
                    derive=_every_reader,
                    rows={"variant": "variant", "reader": "task"},
                    folded=True,
                    columns=(
                        Column("distance", "distance"),
                        Column("at the start", "start", THREE),
                        Column("learned", "learned", SIGNED),
                        Column("p", "learned", format_adjusted_p),
                        Column("entropy", "entropy", THREE),
                        Column("", "distance", lambda row: {**UNIFORM, None: ABSENT}[is_uniform(row)]),
                    ),
                ),
                Pivot(
                    name="variants",
                    where={"measure": vocab.STABILITY, "seed": None},
                    rows={"variant": "variant"},
                    folded=True,
                    columns=(
                        Column("runs with a spike", "spiked"),
                        Column("spread over seeds (nats)", "spread"),
                        Column("ratio", "spread_ratio"),
                        Column("gradient norm", "gradient_norm"),
                    ),
                ),
            ),
        ),
        TRAINING_SECTION,
        Section(
            anchor="costs",
            needs={"measure": vocab.TRAINING, "metric": tuple(COSTS)},
            parts=(
                Pivot(
                    name="costs",
                    derive=derive_costs,
                    rows={"variant": "variant"},
                    terminal=False,
                    columns=make_cost_columns(COSTS, lambda ratio: f"×{format_fixed(ratio, 2)}"),
                ),
                Text(cost_notes, terminal=False),
            ),
        ),
    ),
)
