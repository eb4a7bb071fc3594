"""Page sections of a diagnosis about changes of layers: recovery from damage, weight changes, gates, and proxies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from layerwise.page.data import ReportData
from layerwise.page.formatting import DIFFERENCE, NUMBER, Format, format_null, format_number, join_words
from layerwise.page.kind import Column, Part, Pivot, Section, SideBySide, Text
from layerwise.page.marks import Heat, Lines, Scatter
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.studies.diagnose.page_weights import HALVES, list_joint_costs, list_written

DAMAGES = {"noise_50": "noise of 50 %", "equal_damage": "equal damage", "reinitialize": "reinitialized"}
SCOPES = {"layer": "layer trained", "model": "model trained"}
RECOVERED = {
    "area": ("Loss above the undamaged copy, summed over training", Format(axis="nat-steps"), "censored"),
    "steps_to_original": (
        "Steps until the loss is back to its value before the damage",
        Format(axis="steps"),
        "censored_original",
    ),
}
"""Title and format of each metric of recovery, and the metric that marks layers that did not fully recover."""
GATES = {None: "Gate of the whole layer", "attn": "Gate of the attention", "mlp": "Gate of the MLP"}
CENSORED = "censored"
SKIPPED = DIFFERENCE.replace(axis="Δ NLL of skipping", reference=None)


def list_treated(data: ReportData) -> Iterator[Score]:
    """Yield the rows about recovery, with the damage in words as `condition`. The published damage comes first.

    Rows of layers that did not fully recover have the `kind` `CENSORED`.
    """
    rows = data.rows.where(measure=vocab.RECOVERY, seed=None)
    order = list(DAMAGES)
    treatments = dict.fromkeys((row.condition, row.variant) for row in rows if row.layer is not None)
    for damage, scope in sorted(treatments, key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order)):
        own = rows.where(condition=damage, variant=scope)
        words = ", ".join([DAMAGES.get(str(damage), str(damage)), *([SCOPES.get(scope, scope)] if scope else [])])
        for row in own:
            cut = RECOVERED[row.metric][2] if row.metric in RECOVERED else ""
            share = own.value(metric=cut, layer=row.layer, against=None) if cut and row.layer is not None else None
            yield replace(row, condition=words, variant=None, kind=CENSORED if share else None)


def pair_with_skipping(data: ReportData) -> Iterator[Score]:
    rows = Rows(list_treated(data))
    yield from rows.where(metric="area", layer=PRESENT, against=None)
    for damage in rows.where(metric="area", layer=PRESENT).axis("condition"):
        skips = data.rows.where(
            measure=vocab.ABLATION, metric=vocab.SKIPPING, task=vocab.ALL, part=None, against=None, layer=PRESENT
        )
        yield from (replace(row, condition=damage) for row in skips)


def _describe_correlation(metric: str) -> Column:
    def cell(rows: Rows) -> str:
        row, chance = (rows.one(metric=metric, against=against) for against in (None, vocab.SHUFFLED_LAYERS))
        if row is not None and row.low is None and chance is not None and chance.low is not None:
            return (
                f"{format_number(row.value, signed=True)} [by chance "
                f"{format_number(chance.low)} to {format_number(chance.high or 0.0)}]"
            )
        return NUMBER.replace(signed=True).text(row)

    heads = {
        "spearman": "rank correlation with the effect of skipping",
        "spearman_given_damage": "the same, controlled for the initial damage",
    }
    return Column(heads[metric], text=cell)


RECOVERY_SECTION = Section(
    anchor=vocab.RECOVERY,
    needs={"measure": vocab.RECOVERY, "layer": PRESENT},
    parts=(
        SideBySide(
            (
                *(
                    Lines(
                        name=f"recovery-{metric}",
                        title=f"{title}, by layer",
                        derive=list_treated,
                        words=str,
                        where={"metric": metric, "layer": PRESENT},
                        choices={"Damage": "condition"},
                        nulls=format_null,
                        show=show,
                        hollow=lambda row: row.kind == CENSORED,
                        height=330,
                    )
                    for metric, (title, show, _) in RECOVERED.items()
                ),
                Scatter(
                    name="recovery-ablation",
                    words=str,
                    derive=pair_with_skipping,
                    choices={"Damage": "condition"},
                    across={"metric": vocab.SKIPPING},
                    upwards={"metric": "area"},
                    show_across=SKIPPED,
                    show=Format(axis="area, nat-steps"),
                    numbered=True,
                    hollow=lambda row: row.kind == CENSORED,
                    height=330,
                ),
            )
        ),
        Pivot(
            name="does-recovery-follow",
            derive=list_treated,
            where={"layer": None},
            rows={"damage": "condition"},
            columns=(_describe_correlation("spearman"), _describe_correlation("spearman_given_damage")),
            folded=True,
        ),
    ),
)


def list_typical(data: ReportData) -> Iterator[Score]:
    """Yield the median over layers for each strategy and size, with the interquartile range, and the baseline."""
    rows = data.rows.where(measure=vocab.MANIPULATION, part=None, layer=PRESENT)
    strategies = [name for name in rows.axis("condition") if name != vocab.GATE]
    for name in strategies:
        yield from _compute_medians(rows.where(condition=name, against=None))
    yield from _list_middle_nulls(rows.where(condition=tuple(strategies[:1])))


def _compute_medians(rows: Rows) -> Iterator[Score]:
    for size, own in rows.by("strength").items():
        values = sorted(row.value for row in own)
        quarter = len(values) // 4
        bounds = (values[quarter], values[-1 - quarter]) if len(values) > 3 else (None, None)
        name = next(iter(own)).condition
        yield Score(vocab.MANIPULATION, "median", median(values), *bounds, condition=name, strength=size)


def _list_middle_nulls(rows: Rows) -> Iterator[Score]:
    for own in rows.where(against=vocab.NO_EFFECT).by("strength").values():
        yield sorted(own, key=lambda row: row.high or 0.0)[len(own) // 2]


def list_gated(data: ReportData) -> Iterator[Score]:
    rows = data.rows.where(measure=vocab.MANIPULATION, condition=vocab.GATE)
    for part, words in GATES.items():
        yield from (replace(row, part=words) for row in _compute_medians(rows.where(part=part, against=None)))
    yield from (replace(row, part=GATES[None]) for row in _list_middle_nulls(rows.where(part=None)))


def _list_members(data: ReportData) -> Iterator[str]:
    rows = data.rows.where(measure=vocab.CONTRAST, claim="joint_manipulation", metric="member")
    if rows:
        layers = join_words([str(layer) for layer in sorted(rows.axis("layer"))])
        yield f"Layers {layers} cost little when skipped one at a time. In this table they were changed together."


def list_manipulations(data: ReportData) -> Iterator[Part]:
    yield Lines(
        name="manipulation",
        derive=list_typical,
        x="strength",
        series="condition",
        nulls=format_null,
        show=DIFFERENCE,
        sizes=True,
        named=True,
        across="size of the change, ‖ΔW‖ / ‖W‖",
        at="size {}, median over layers",
        sqrt_scale="default",
    )
    yield Lines(
        name="gate",
        derive=list_gated,
        x="strength",
        series="part",
        words=str,
        nulls=format_null,
        show=DIFFERENCE,
        named=True,
        across="α",
        at="α = {}, median over layers",
        sqrt_scale="default",
    )
    yield Text(_list_members, terminal=False)
    yield replace(
        list_joint_costs("joint_manipulation", {"strategy": "condition", "size": "strength"}, list_written),
        title="Layers changed together",
        folded=True,
    )


MANIPULATION_SECTION = Section(anchor=vocab.MANIPULATION, parts=list_manipulations)


def pair_gates_with_skipping(data: ReportData) -> Iterator[Score]:
    gates = data.rows.where(measure=vocab.PROXIES, metric="gate_gradient", against=None)
    skips = data.rows.where(measure=vocab.ABLATION, metric=vocab.SKIPPING, task=vocab.ALL, against=None)
    for part, words in HALVES.items():
        pair = (gates.where(part=part, layer=PRESENT), skips.where(part=part, layer=PRESENT))
        if all(pair):
            yield from (replace(row, part=words) for rows in pair for row in rows)


PROXIES_SECTION = Section(
    anchor=vocab.PROXIES,
    parts=(
        SideBySide(
            (
                Heat(
                    name="proxies-angular",
                    y="distance",
                    where={"measure": vocab.PROXIES, "metric": "angular_distance"},
                    across="first layer",
                    down="number of layers",
                    cell_words=lambda value: f"{value:g}",
                    least=0.0,
                    upwards=True,
                    height=340,
                ),
                Scatter(
                    name="proxies-skip",
                    derive=pair_gates_with_skipping,
                    choices={"Part": "part"},
                    words=str,
                    across={"metric": vocab.SKIPPING},
                    upwards={"metric": "gate_gradient"},
                    show_across=SKIPPED,
                    show=Format(axis="gate gradient"),
                    equal=True,
                    numbered=True,
                    height=340,
                ),
            )
        ),
    ),
)
