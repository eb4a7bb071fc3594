"""Pre-training: what its arms came to, what their layers read, whether seeds agree, how they fail, what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, stdev

from layerwise.report.arms import arm_slots, in_reading_order
from layerwise.report.data import ReportData
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.levels import Level, levels
from layerwise.report.finding import Finding, Number, State
from layerwise.report.kind import Beside, Column, Kind, Part, Pivot, Says, Section, Tabled
from layerwise.report.kinds.training import TRAINING_SECTION, unfinished
from layerwise.report.marks import Dots, Mark
from layerwise.report.page.group import arm_tiles, incomplete
from layerwise.report.page.number_format import fixed, is_resolved, probability, tidy
from layerwise.report.page.table import Table, Tone
from layerwise.report.page.wording import counted, listed
from layerwise.report.show import ABSENT, ACCURACY, NUMBER, Show
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import (
    ALL,
    ALPHA,
    ATTRIBUTION,
    BABYLM,
    BACKBONE,
    BEYOND_DISTANCE,
    BEYOND_START,
    EMBEDDING,
    FINE_TUNED,
    GLUE,
    MASKED_LM,
    MSGS,
    OUR_MSGS,
    OUTPUT,
    PAIRS,
    SEED_AGREEMENT,
    SHUFFLED,
    STABILITY,
    STUDY,
    TRAINING,
    UNIFORMITY,
)

SUITES = {PAIRS: "Minimal pairs of our own", "blimp": "BLiMP", "supplement": "BLiMP supplement", "ewok": "EWoK"}
"""Suites of minimal pairs: the better of two sentences must be the likelier. Others are files of a user."""
TASKS = {GLUE: "GLUE", MSGS: "MSGS", OUR_MSGS: "Mixed signals of our own"}
"""Suites that models are fine-tuned on."""

MARGIN = 0.05
"""The share of a row's weight that counts; a test compares it with that of the measure."""
CHANCE_OF_PAIRS = 50.0
"""Percent of minimal pairs that guessing gets right."""

LOSS = Show(axis="nats per masked token", decimals=3)
RIGHT = ACCURACY.but(span=None, reference=CHANCE_OF_PAIRS)
DISTANCE = Show(axis="distance from equal shares")
SIGNED = NUMBER.but(signed=True)
THREE = Show(decimals=3, bounds=False)

COSTS: Mapping[str, tuple[str, float]] = {
    "parameters": ("parameters", 1.0), "tokens": ("tokens", 1.0), "seconds": ("training (s)", 1.0),
    "step_seconds": ("step (s)", 1.0), "peak_bytes": ("peak (MiB)", 2.0**-20), "latency_seconds": ("pass (ms)", 1000.0),
    "weight_bytes": ("weights (MiB)", 2.0**-20), "state_bytes": ("states (MiB)", 2.0**-20),
    "activation_bytes": ("activations (MiB)", 2.0**-20), "allocated_bytes": ("pass peak (MiB)", 2.0**-20),
}  # fmt: skip
LIKE = {
    ("correlation", None): ("Do the seeds weigh their layers alike?", "as they are"),
    ("correlation", BEYOND_START): ("Are they alike beyond the start they share?", "beyond the start"),
    ("contrast", None): ("Do surface and linguistic layers keep to themselves?", "as they are"),
    ("contrast", BEYOND_DISTANCE): ("Do they beyond being neighbours?", "beyond distance"),
}
"""The questions of agreement by metric and condition, and how their rows are called in a figure."""


def suites(data: ReportData) -> tuple[str, ...]:
    """The suites of minimal pairs that were evaluated, the known ones first."""
    measures = data.rows.axis("measure")
    files = (measure for measure in measures if measure.startswith(f"{PAIRS} "))
    return (*(name for name in SUITES if name in measures), *files)


def suite_name(measure: str) -> str:
    """A suite as it is read; a user's file goes by its own name."""
    return SUITES.get(measure) or TASKS.get(measure) or measure


def arms(data: ReportData) -> tuple[str, ...]:
    """The arms whose models were trained or evaluated as they are, in reading order."""
    measures = (MASKED_LM, ALPHA, TRAINING, UNIFORMITY, STABILITY, BABYLM, ATTRIBUTION, *FINE_TUNED, *suites(data))
    return in_reading_order(arm for name in measures for arm in data.rows.where(measure=name, plan=None).axis("arm"))


def seeds(data: ReportData, arm: str) -> tuple[int, ...]:
    """The seeds that any row of an arm is of."""
    return tuple(sorted(data.rows.where(arm=arm, seed=PRESENT, plan=None).axis("seed")))


def slots(data: ReportData) -> Callable[[Sequence[str]], Mapping[str, int]]:
    """The colours of arms, the same in every figure of a run."""
    of = arm_slots(arms(data))
    return lambda names: {name: of.get(name, 0) for name in names}


def by_arm(rows: Iterable[Score]) -> Rows:
    """Of each arm, in reading order: its own row, else the mean of its seeds, without an interval."""
    cells: dict[tuple[str, ...], list[Score]] = {}
    for row in rows:
        if row.arm is not None and row.other is None:
            key = (row.arm, row.task, row.metric, row.condition or "", row.against or "")
            cells.setdefault(key, []).append(row)
    order = {arm: at for at, arm in enumerate(in_reading_order(key[0] for key in cells))}
    return Rows(_mean(own) for _, own in sorted(cells.items(), key=lambda cell: order[cell[0][0]]))


def _mean(own: Sequence[Score]) -> Score:
    whole = next((row for row in own if row.seed is None), own[0])
    if whole.seed is None or len(own) == 1:
        return replace(whole, seed=None)
    return replace(whole, seed=None, value=fmean(row.value for row in own), low=None, high=None, p=None)


def with_seeds(rows: Rows) -> Iterator[Score]:
    """The rows of arms, and where an arm has several seeds the rows of these."""
    yield from by_arm(rows)
    for own in rows.where(seed=PRESENT, other=None).by("arm").values():
        if len(own) > 1:
            yield from own


def answered(arm: str, text: str, at: int) -> Iterator[str]:
    """A clause of an answer: an arm with its number, the first without a comma before it."""
    yield f"{', ' if at else ''}{arm} "
    yield Number(text)


def held_out_findings(data: ReportData) -> Iterator[Finding]:
    """What pre-training gave: the arms by their held-out loss."""
    ranked = sorted(by_arm(data.rows.where(measure=MASKED_LM)), key=lambda row: row.value)
    if not ranked:
        return
    clauses = (piece for at, row in enumerate(ranked) for piece in answered(str(row.arm), LOSS.text(row), at))
    studied = data.rows.where(measure=STUDY)
    more = " A study compares arms, seed by seed." if len(ranked) > 1 and not studied else ""
    state: State = "resolved" if all(row.low is not None for row in ranked) else "described"
    answer = ("Held-out loss in nats per masked token: ", *clauses, ".", *([more] if more else []))
    yield Finding("What did pre-training give?", answer, state)


def suite_findings(data: ReportData) -> Iterator[Finding]:
    """Each suite of minimal pairs: which arms are distinguished from chance, and on which side."""
    for suite in suites(data):
        of = by_arm(data.rows.where(measure=suite, metric="accuracy", task=ALL))
        if not of:
            continue
        chance = CHANCE_OF_PAIRS / 100
        above = [str(row.arm) for row in of if row.low is not None and row.low > chance]
        below = [str(row.arm) for row in of if row.high is not None and row.high < chance]
        whole = "all" if len(above) == len(of) and len(of) > 1 else listed(above) or "none"
        clauses = (piece for at, row in enumerate(of) for piece in answered(str(row.arm), ACCURACY.text(row), at))
        ends = f"; above chance ({CHANCE_OF_PAIRS:g} %): {whole}", f"; below it: {listed(below)}." if below else "."
        state: State = "described" if all(row.low is None for row in of) else "resolved"
        yield Finding(f"What is known of {suite_name(suite)}?", (*clauses, *ends), state)


def outcome_findings(data: ReportData) -> Iterator[Finding]:
    """The held-out loss, and what is known of every suite of minimal pairs."""
    yield from held_out_findings(data)
    yield from suite_findings(data)


def _losses(data: ReportData) -> Iterator[Score]:
    return with_seeds(data.rows.where(measure=MASKED_LM))


def _first_suite(data: ReportData) -> Iterator[Score]:
    """The first suite alone: the others have a section of their own."""
    return with_seeds(data.rows.where(measure=suites(data)[:1], metric="accuracy", task=ALL))


def outcome_table(data: ReportData) -> Table:
    """A line an arm: seeds, held-out loss, and the accuracy on every suite of minimal pairs."""
    columns = [("held-out loss (nats)", LOSS, by_arm(data.rows.where(measure=MASKED_LM)).along("arm"))]
    for suite in suites(data):
        of = by_arm(data.rows.where(measure=suite, metric="accuracy", task=ALL))
        columns.append((suite_name(suite), ACCURACY, of.along("arm")))
    shown = [column for column in columns if column[2]]
    body = []
    for arm in arms(data):
        if any(arm in of for _, _, of in shown):
            count = len(seeds(data, arm))
            cells = (show.text(of.get(arm)) for _, show, of in shown)
            body.append((arm, str(count) if count else ABSENT, *cells))
    return Table(("arm", "seeds", *(head for head, _, _ in shown)), tuple(body))


def readers(rows: Iterable[Score]) -> Iterator[Score]:
    """Rows by reader, each with its name as the task: a layer, or the output."""
    for row in rows:
        yield replace(row, task="the output" if row.part == OUTPUT else f"layer {row.layer}")


def weight_parts(data: ReportData) -> Iterator[Part]:
    """A table for each arm that learned layer weights."""
    learned = in_reading_order(data.rows.where(measure=ALPHA).axis("arm"))
    for arm in learned:
        note = "weights" if arm == learned[-1] else ""
        table = partial(weight_table, arm=arm)
        yield Tabled(title=f"Layer weights of {arm}", table=table, terminal=False, note=note)


def weight_table(data: ReportData, arm: str) -> Table:
    """A line a reader, a column a source: the mean weight over seeds, with its standard deviation where there are two.

    The stronger the colour, the greater the weight, up to the greatest of a reader that has a choice.
    """
    cells: dict[tuple[int | None, int], list[Score]] = {}
    for row in data.rows.where(measure=ALPHA, arm=arm, other=PRESENT):
        cells.setdefault((row.layer, row.other or 0), []).append(row)
    means = {cell: fmean(row.value for row in own) for cell, own in cells.items()}
    most = max((abs(value) for (reader, _), value in means.items() if reader != 0), default=1.0) or 1.0
    lines = sorted({reader for reader, _ in cells}, key=lambda reader: (reader is None, reader))
    sources = sorted({source for _, source in cells})
    body, tones = [], {}
    for line, reader in enumerate(lines):
        texts = ["the output" if reader is None else f"layer {reader}"]
        for at, source in enumerate(sources, start=1):
            own = cells.get((reader, source))
            if own is None:
                texts.append("")
                continue
            value, values = means[reader, source], [row.value for row in own]
            spread = f" [±{fixed(stdev(values), 2)}]" if len(values) > 1 else ""
            texts.append(f"{fixed(value, 2)}{spread}")
            by_seed = "; ".join(f"{arm}/{row.seed}: {tidy(row.value)}" for row in own)
            title = f"{texts[0]} reads {source_name(source)}: {tidy(value)} ({by_seed})"
            tones[line, at] = Tone("negative" if value < 0 else "weight", min(1.0, abs(value) / most), title)
        body.append(tuple(texts))
    heads = ("e" if source == EMBEDDING else str(source - 1) for source in sources)
    return Table(("reader", *heads), tuple(body), tones=tones)


def source_name(source: int) -> str:
    """A source as it is read.

    >>> source_name(EMBEDDING), source_name(3)
    ('the embedding', 'layer 2')
    """
    return "the embedding" if source == EMBEDDING else f"layer {source - 1}"


@dataclass(frozen=True, kw_only=True)
class AgreementLevels(Mark):
    """Every arm's agreement in each row, over the grey band of its null."""

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        """The levels of the rows that are against nothing, over those that are against shuffled ones."""
        measured = rows.where(against=None)
        marks = [Level(arm, _in_rows(own), slots.get(arm, 0)) for arm, own in measured.by("arm").items()]
        null = Level("shuffled", _in_rows(rows.where(against=SHUFFLED)), null=True)
        return levels([*marks, *([null] if null.rows else [])], across=self.show.axis) if marks else None


def _in_rows(rows: Rows) -> dict[str, Score]:
    return {f"{row.arm}, {LIKE[row.metric, row.condition][1]}": row for row in rows}


def agreement_findings(data: ReportData) -> Iterator[Finding]:
    """Each question of agreement, answered for all arms at once."""
    for (metric, condition), (question, _) in LIKE.items():
        rows = data.rows.where(measure=SEED_AGREEMENT, metric=metric, condition=condition, against=None)
        known = [is_resolved(row, data.level) for row in rows]
        words = {True: "more than chance", False: "not distinguishable from chance"}
        answers = [
            f"{row.arm} {words[is_known]} ({metric} {SIGNED.number(row.value)}, p {probability(row.p)})"
            for row, is_known in zip(rows, known, strict=True)
        ]
        if answers:
            yield Finding(question, (f"{'; '.join(answers)}.",), "resolved" if all(known) else "unresolved")


def is_uniform(distance: Score) -> bool | None:
    """Whether weights are uniform by the interval of their distance: within the margin, beyond it, or undecided."""
    if distance.low is None or distance.high is None:
        return None
    return True if distance.high < MARGIN else False if distance.low > MARGIN else None


def stability_findings(data: ReportData) -> Iterator[Finding]:
    """Are the weights uniform, and were the trainings stable?"""
    distances = data.rows.where(measure=UNIFORMITY, metric="distance", layer=None, part=None)
    if distances:
        pieces = [piece for at, row in enumerate(distances) for piece in _uniform(data, row, at)]
        decided = all(is_uniform(row) is not None for row in distances)
        yield Finding("Are the layer weights uniform?", (*pieces, "."), "resolved" if decided else "unresolved")
    if data.rows.where(measure=STABILITY, metric=("spread", "spiked")):
        yield _stable(data)


def _uniform(data: ReportData, distance: Score, at: int) -> Iterator[str]:
    of = data.rows.where(measure=UNIFORMITY, arm=distance.arm)
    words = {True: "uniform", False: "not uniform", None: "not resolvable"}[is_uniform(distance)]
    yield f"{'; ' if at else ''}{distance.arm} {words}, distance "
    yield Number(NUMBER.text(distance))
    start, learned = (of.one(metric=metric, layer=None, part=None) for metric in ("start", "learned"))
    if start is not None and learned is not None:
        if learned.value == 0:
            yield " as at the start"
        else:
            yield f" from {fixed(start.value, 3)} at the start, moved by "
            yield Number(SIGNED.text(learned))
            yield "" if learned.p is None or is_resolved(learned, data.level) else ", not distinguishable from none"
    own = [row for row in of.where(metric="distance") if row.layer is not None or row.part is not None]
    flat = sum(is_uniform(row) is True for row in own)
    yield f", {flat} of {counted(len(own), 'layer')} uniform" if flat else ""


def _stable(data: ReportData) -> Finding:
    run = data.rows.where(measure=STABILITY)
    pieces: list[str] = []
    resolved = True
    for arm in dict.fromkeys((*run.where(metric="spread").axis("arm"), *arms(data))):
        of = run.where(arm=arm, seed=None)
        spiked, spread, ratio = (of.one(metric=metric) for metric in ("spiked", "spread", "spread_ratio"))
        if spread is None and spiked is None:
            continue
        pieces.append(f"{'; ' if pieces else ''}{arm} ")
        if spiked is not None:  # of the trainings that had enough notes to be judged
            spikes = run.where(arm=arm, seed=PRESENT, metric="spikes")
            unstable = sum(row.value > 0 for row in spikes)
            pieces.append(f"{unstable} of {counted(len(spikes), 'training')} with a spike")
        if spread is not None:
            pieces += [", " if spiked is not None else "", "seeds stray by ", Number(NUMBER.text(spread)), " nats"]
        if ratio is not None:
            settled = is_resolved(ratio, data.level)
            resolved = resolved and settled
            words = ("more" if ratio.value > 1 else "less") if settled else "not distinguishable"
            pieces.append(f", {words} against {reference(data) or 'the backbone'} (p {probability(ratio.p_adjusted)})")
    return Finding(
        "Were the trainings stable?", (*filter(None, pieces), "."), "resolved" if resolved else "unresolved"
    )  # fmt: skip


def reference(data: ReportData) -> str | None:
    """The arm that the others are compared with: the backbone where it was trained."""
    return BACKBONE if BACKBONE in arms(data) else None


def _by_reader(data: ReportData) -> Iterator[Score]:
    rows = data.rows.where(measure=UNIFORMITY)
    return readers(row for row in rows if row.layer is not None or row.part is not None)


def _every_reader(data: ReportData) -> Iterator[Score]:
    """The rows of every reader that has all metrics, those of all readers of an arm first."""
    for own in data.rows.where(measure=UNIFORMITY).by("arm").values():
        yield from own.where(layer=None, part=None)
        yield from readers(row for row in own if row.layer is not None or row.part is not None)


def _p_of_learned(rows: Rows) -> str:
    learned = rows.one(metric="learned")
    return probability(None if learned is None else learned.p_adjusted)


def _verdict_of_distance(rows: Rows) -> str:
    distance = rows.one(metric="distance")
    return {True: "uniform", False: "not uniform", None: ABSENT}[None if distance is None else is_uniform(distance)]


def cost_table(data: ReportData) -> Table:
    """A line an arm: what its training and its use took, the mean over seeds, and in brackets as a multiple of the
    backbone where that was trained."""
    rows = by_arm(data.rows.where(measure=TRAINING, metric=tuple(COSTS), amount=None))
    measured = [metric for metric in COSTS if rows.where(metric=metric)]
    base = rows.where(arm=reference(data))
    body = []
    for arm in rows.axis("arm"):
        cells = []
        for metric in measured:
            row, backbone = rows.one(arm=arm, metric=metric), base.one(metric=metric) if base else None
            text = ABSENT if row is None else tidy(COSTS[metric][1] * row.value)
            if row is not None and backbone is not None and backbone.value > 0 and metric != "tokens":
                text += "" if arm == backbone.arm else f" [×{fixed(row.value / backbone.value, 2)}]"
            cells.append(text)
        body.append((arm, *cells))
    return Table(("arm", *(COSTS[metric][0] for metric in measured)), tuple(body))


def cost_notes(data: ReportData) -> Iterator[str]:
    """What the multiples in brackets are of, and how memory at inference is counted, where there are such."""
    against = reference(data)
    if against:
        yield f"In brackets, as a multiple of {against}."
    if data.rows.where(measure=TRAINING, metric="state_bytes"):
        yield (
            "Weights, states and activations are counted: a pass of the encoder over 8 texts of 128 tokens in float32; "
            "states are the outputs of layers that are kept at once, activations all tensors that are alive at once. "
            "The pass peak is an accelerator's own, with the weights."
        )


def tiles(data: ReportData) -> Iterable[tuple[str, str]]:
    """How many arms, and the most seeds of one."""
    named = arms(data)
    return arm_tiles(named, {arm: seeds(data, arm) for arm in named}) if named else ()


def _unfinished(data: ReportData) -> str | None:
    return incomplete((unfinished(data), "training"))


def _following(data: ReportData) -> Iterator[str]:
    if not any(suite != PAIRS for suite in suites(data)) and not data.rows.where(measure=FINE_TUNED):
        yield "Next, what the models know of published suites: layerwise evaluate RUN --suite blimp,glue --data FOLDER"


def is_pretrained(data: ReportData) -> bool:
    """Whether models were pre-trained in this run, and not refined with layer weights of their own."""
    return bool(data.rows.where(measure=(MASKED_LM, SEED_AGREEMENT)))


WEIGHTS = Section(
    anchor=ALPHA, title="What every layer reads", short="Weights", prose="pretraining", parts=weight_parts,
    missing="No arm of this run has layer weights (alpha): its layers read the state before them and no other.",
)  # fmt: skip


def _stability_parts(data: ReportData) -> tuple[Part, ...]:
    return (
        Dots(
            name="uniformity", title="How far each row is from uniform", derive=_by_reader, series="arm", words=str,
            where={"metric": "distance"}, slots=slots(data), legend="Arms", show=DISTANCE, from_zero=True,
            allowed=(0.0, MARGIN), note="distances",
        ),
        Says(stability_findings),
        Pivot(
            title="Every row of weights", derive=_every_reader, rows={"arm": "arm", "reader": "task"}, folded=True,
            terminal=False,
            columns=(
                Column("distance", "distance"), Column("at the start", "start", THREE),
                Column("learned", "learned", SIGNED), Column("p", text=_p_of_learned),
                Column("entropy", "entropy", THREE), Column("", text=_verdict_of_distance),
            ),
        ),
        Pivot(
            title="Every arm", where={"measure": STABILITY, "seed": None}, rows={"arm": "arm"}, folded=True,
            terminal=False,
            columns=(
                Column("trainings with a spike", "spiked"), Column("spread over seeds (nats)", "spread"),
                Column("as a ratio", "spread_ratio"), Column("gradient norm", "gradient_norm"),
            ),
        ),
    )  # fmt: skip


def _agreement_mark(name: str, title: str, axis: str, data: ReportData) -> AgreementLevels:
    return AgreementLevels(
        name=f"seed-agreement-{name}", title=title, where={"measure": SEED_AGREEMENT, "metric": name}, series="arm",
        slots=slots(data), words=str, show=Show(axis=axis),
    )  # fmt: skip


PRETRAINING = Kind(
    name="pretraining",
    measures=(MASKED_LM, SEED_AGREEMENT),
    claims=True,
    tiles=tiles,
    unfinished=_unfinished,
    following=_following,
    answer=lambda data: next((f"{each.question} {each.text}" for each in outcome_findings(data)), ""),
    sections=(
        Section(
            anchor=MASKED_LM, title="What pre-training gave", short="Outcome",
            needs=lambda data: bool(data.rows.where(measure=MASKED_LM) or suites(data)),
            missing=(
                "Nothing was measured on held-out text yet (masked_lm), and no minimal pairs were evaluated (pairs)."
            ),
            parts=lambda data: (
                Beside(
                    (
                        Dots(
                            name="held-out", title="Loss on held-out text", derive=_losses, y="arm", series="arm",
                            slots=slots(data), words=str, show=LOSS, note="outcome",
                        ),
                        Dots(
                            name="outcome-pairs", title="".join(map(suite_name, suites(data)[:1])), y="arm",
                            derive=_first_suite, series="arm", slots=slots(data), words=str, show=RIGHT,
                        ),
                    )
                ),
                Says(outcome_findings),
                Tabled(title="Every number", table=outcome_table, folded=True),
            ),
        ),
        WEIGHTS,
        Section(
            anchor=SEED_AGREEMENT, title="Do the weights mean anything", short="Agreement of seeds",
            missing=(
                "The weights were not compared across seeds (seed_agreement): that needs layer weights of two seeds or "
                "more."
            ),
            parts=lambda data: (
                Beside(
                    (
                        _agreement_mark(
                            "correlation", "Agreement across seeds", "mean rank correlation of two seeds", data
                        ),
                        _agreement_mark(
                            "contrast", "Within groups of layers, minus across",
                            "weight, in multiples of a uniform row's", data,
                        ),
                    )
                ),
                Says(agreement_findings, note="null"),
            ),
        ),
        Section(
            anchor="stability", title="Uniform rows and unstable trainings", short="Stability",
            needs={"measure": (UNIFORMITY, STABILITY)}, parts=_stability_parts,
            missing="Neither uniformity nor stability was measured in this run (uniformity, stability).",
        ),
        TRAINING_SECTION,
        Section(
            anchor="costs", title="What it cost", short="Cost",
            needs={"measure": TRAINING, "metric": tuple(COSTS)},
            missing="Time, memory and size of the trainings were not noted (training).",
            parts=(
                Tabled(table=cost_table, terminal=False, note="means"), Says(cost_notes, terminal=False),
            ),
        ),
    ),
)  # fmt: skip
