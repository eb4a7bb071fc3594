"""Every bar of the claims about unlike layers: rows a little to either side of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import sqrt

from layerwise.results.rows import Score
from report.claims.bars import (
    CONTRADICTED,
    FAR,
    NEAR,
    NULL,
    OPEN,
    SUPPORTED,
    UNMEASURED,
    Case,
    Ends,
    Rows,
    around,
    beside,
    each,
    parametrized,
    planted,
    varied,
    wider,
)

CLEAR: Ends = (0.4, 0.8)
SAME: Ends = (-0.001, 0.001)
EITHER = {"above": SUPPORTED, "within": NULL, "below": CONTRADICTED, "open": OPEN}
BESIDE_NULL = {"above": SUPPORTED, "within": NULL, "below": NULL, "open": OPEN}


def together() -> Iterator[Case]:
    """Layers that are changed or left out together."""
    joint: Rows = {"joint": (1.5, 2.5), "beyond_singles": CLEAR, "beyond_noise": CLEAR, "layers": 9.0}
    collapse = {"above": SUPPORTED, "below": CONTRADICTED, "open": OPEN}
    yield from varied("joint_collapse", joint, "joint", beside(1.0), collapse)
    for share in ("beyond_singles", "beyond_noise"):
        yield from varied("joint_collapse", joint, share, around(0.2), BESIDE_NULL)

    sets: Rows = {"joint": 0.1, "spared": CLEAR, "layers": 3.0, "singles": 0.1}
    less = {**sets, "joint": (-0.1, 0.1)}
    dropped = {"above": CONTRADICTED, "below": SUPPORTED, "open": OPEN}
    yield from varied("redundant_sets", sets, "joint", beside(0.2), dropped)
    yield from varied("redundant_sets", less, "spared", around(0.05), BESIDE_NULL)

    for position, verdict in EITHER.items():
        for number, ends in enumerate(around(0.2)[position]):
            rows = planted(
                "error_accumulation",
                {"joint": 1.0, "singles": 0.5, "share": ends, "layers": 5.0},
                condition="set",
                amount=4.0,
            )
            yield Case("error_accumulation", f"share {position} {number}", rows, verdict)


def beyond_scaling(claim: str, noise: Rows) -> tuple[Score, ...]:
    """What noise costs more than scaling, and what another strategy does, which is always clear."""
    zero: Rows = {"equal": CLEAR, "unequal": CLEAR}
    return (*planted(claim, {**zero, **noise}, condition="noise"), *planted(claim, zero, condition="zero"))


def sized(scaled: Ends = (0.0, 0.1), **noise: Ends) -> tuple[Score, ...]:
    """Layers scaled together by a tenth, and two other strategies beside it, one of which is always clear."""
    return (
        *planted(
            "joint_manipulation", {"joint": scaled, "singles": 0.1, "share": CLEAR}, condition="scale", amount=0.1
        ),
        *planted("joint_manipulation", {"layers": 3.0}),
        *beyond_scaling("joint_manipulation", noise),
    )  # fmt: skip


def strategies() -> Iterator[Case]:
    """Scaling beside the other strategies, at one size and at their own."""
    yield from each(
        "scaling", "equal:noise", around(0.01), BESIDE_NULL, lambda ends: beyond_scaling("scaling", {"equal": ends})
    )
    favours = {"above": NULL, "within": CONTRADICTED, "below": CONTRADICTED, "open": OPEN}
    yield from each(
        "scaling", "unequal:noise", around(0.01), favours,
        lambda ends: beyond_scaling("scaling", {"equal": SAME, "unequal": ends}),
    )  # fmt: skip

    yield from each(
        "joint_manipulation",
        "scale",
        beside(0.2),
        {"above": CONTRADICTED, "below": SUPPORTED, "open": OPEN},
        lambda ends: sized(ends),
    )
    for position, ends_of in around(0.05).items():
        for number, ends in enumerate(ends_of):
            name = f"{position} {number}"
            yield Case("joint_manipulation", f"equal {name}", sized(equal=ends), BESIDE_NULL[position])
            yield Case("joint_manipulation", f"unequal {name}", sized(equal=SAME, unequal=ends), favours[position])


def single_layers() -> Iterator[Case]:
    """A core, layers that do harm, and the range of what layers matter."""
    yield from each(
        "core",
        "skip",
        beside(0.0),
        {"above": SUPPORTED, "below": CONTRADICTED, "open": OPEN},
        lambda ends: planted("core", {"skip_excess": ends}, layer=3, other=4),
    )
    # Only where the published damage shows a core, and random weights of the same norm nearly do, is it the damage.
    for average, random in ((NEAR, -NEAR), (-NEAR, -NEAR), (NEAR, NEAR)):
        rows: Rows = {
            "skip_excess": (-0.5, -NEAR), "average_excess": (average, FAR), "average_over_random": (-FAR, random),
        }  # fmt: skip
        verdict = NULL if average > 0 > random else CONTRADICTED
        yield Case("core", f"damage {average:g} {random:g}", planted("core", rows, layer=3, other=4), verdict)

    for low, naive, verdict in (
        (-0.006 + NEAR, 0.001, CONTRADICTED),
        (-0.006 - NEAR, 0.001, OPEN),
        (-0.006 + NEAR, -NEAR, NULL),
        (-0.006 - NEAR, -NEAR, OPEN),
        (-0.006 + NEAR, NEAR, CONTRADICTED),
    ):
        judged = [Score.of("verdict", "no_effect", 0.0, low, 0.01, layer=layer) for layer in range(12)]
        skipped = Score.of("ablation", "skip", -0.001, -0.002, naive, layer=3)
        yield Case("anti_layers", f"low {low:g} {naive:g}", (*judged, skipped), verdict)
    harmful = Score.of("verdict", "harmful", -0.01, -0.02, -0.001, layer=3)
    yield Case("anti_layers", "harmful", (harmful,), SUPPORTED)
    yield Case("anti_layers", "an effect is no verdict", (skipped,), UNMEASURED)

    # The published range counts as it is for the null, and with its whole interval against the claim.
    for own, published, verdict in (
        ((2 + NEAR, 3.0), (2.5, 4.0), SUPPORTED),
        ((2 - NEAR, 3.0), (2.5, 4.0), OPEN),
        ((1.0, 2 - NEAR), (1.0, 3.0 + 2 * NEAR), NULL),
        ((1.0, 2 - NEAR), (1.0, 3.0 - 2 * NEAR), OPEN),
        ((1.0, 2 + NEAR), (1.0, 3.0), OPEN),
        ((1.0, 2 - NEAR), (1.0, 2 - NEAR), CONTRADICTED),
        ((1.0, 2 - NEAR), (1.0, 2 + NEAR), OPEN),
    ):
        rows = {"range": own, "published": published}
        yield Case("importance_range", f"{own} {published}", planted("importance_range", rows), verdict)


def scored(measure: str, rows: Mapping[str, Ends | float], **columns: object) -> tuple[Score, ...]:
    return planted("", rows, measure=measure, **columns)


def correlations() -> Iterator[Case]:
    """Rank correlations of metrics and of recovery, and of successive differences of weights."""
    rows: Rows = {"apart": CLEAR, "together": CLEAR, "layers": 12.0}
    yield from varied("agreement", rows, "apart", around(0.3), BESIDE_NULL)
    alone = {**rows, "apart": SAME}
    damage = {"above": NULL, "within": CONTRADICTED, "below": CONTRADICTED, "open": OPEN}
    yield from varied("agreement", alone, "together", around(0.3), damage)

    def recovered(published: Ends, among: Ends) -> tuple[Score, ...]:
        return (
            *scored("recovery", {"spearman_published": published, "layers": 30.0}, condition="noise_50", arm="layer"),
            *scored("recovery", {"spearman": among, "layers": 30.0}, condition="equal_damage", arm="layer"),
        )

    for position, ends_of in around(0.5).items():
        published = {"above": SUPPORTED, "within": SUPPORTED, "below": OPEN, "open": SUPPORTED}[position]
        null = {"above": NULL, "within": CONTRADICTED, "below": CONTRADICTED, "open": OPEN}[position]
        for number, ends in enumerate(ends_of):
            name = f"{position} {number}"
            yield Case("recovery", f"among {name}", recovered(CLEAR, ends), BESIDE_NULL[position])
            yield Case("recovery", f"published {name}", recovered(ends, CLEAR), published)
            yield Case("recovery", f"published beside none {name}", recovered(ends, SAME), null)

    lag = {"below": SUPPORTED, "within": NULL, "above": CONTRADICTED, "open": OPEN}
    for position, ends_of in around(0.1).items():
        for number, ends in enumerate(ends_of):
            rows = {"unresolved": ends, "correlation": -0.5}
            yield Case("oscillation", f"{position} {number}", scored("deltas", rows, amount=1), lag[position])


def narrowed(end: float, way: float, types: int) -> Ends:
    """An interval that ends at `end` once it is widened for so many types of tensors."""
    value = end - way * wider(types) * 0.05
    return value - 0.05, value + 0.05


def types() -> Iterator[Case]:
    """Of 2 and of 12 types of tensors the intervals hold together, in closed form."""
    for count in (2, 12):
        usual = {"below": (-0.9, -0.6), "within": SAME}

        def case(name: str, verdict: str, first: Ends, rest: Ends, count: int = count) -> Case:
            ends = [first, *[rest] * (count - 1)]
            rows = [
                row
                for number, each in enumerate(ends)
                for row in scored("deltas", {"unresolved": each, "correlation": -0.5}, amount=1, part=f"type{number}")
            ]
            return Case("universal_oscillation", f"{name} of {count}", tuple(rows), verdict)

        yield case("below", SUPPORTED, narrowed(-NEAR, 1.0, count), usual["below"])
        yield case("not below", OPEN, narrowed(NEAR, 1.0, count), usual["below"])
        yield case("above", CONTRADICTED, narrowed(NEAR, -1.0, count), usual["below"])
        yield case("not above", OPEN, narrowed(-NEAR, -1.0, count), usual["below"])
        width = (0.1 - NEAR) / wider(count)
        yield case("within", NULL, (-width, width), usual["within"])
        width = (0.1 + NEAR) / wider(count)
        yield case("not within", OPEN, (-width, width), usual["within"])
        yield case("some", CONTRADICTED, usual["within"], usual["below"])


TWIN = "twin"
"""The held-out rows of a random twin."""


def r_squared(**rows: Ends) -> tuple[Score, ...]:
    """R2 in sample, on held-out rows and layers, and their nulls."""
    usual: dict[str, Ends | float] = {"in_sample_r2": (0.8, 0.9)}
    twin = rows.pop(TWIN, None)
    null: Rows = {} if twin is None else {"heldout_rows_r2": twin}
    return (*scored("predictability", {**usual, **rows}), *scored("predictability", null, against="random_twin"))


def threefold(end: float, way: float, half: float = 0.02) -> Ends:
    """An interval that ends at `end` once it is widened by the root of three: each layer stands in three fits."""
    value = end - way * sqrt(3) * half
    return value - half, value + half


def predictions() -> Iterator[Case]:
    """Half of the variance, and a null within a tenth of it."""
    held, twin = "heldout_rows_r2", TWIN

    def case(name: str, verdict: str, **rows: Ends) -> Case:
        return Case("predictability", name, r_squared(**rows), verdict)

    above, at = threefold(0.5 + NEAR, -1.0), threefold(0.5 - NEAR, -1.0)
    below, nearly = threefold(0.5 - NEAR, 1.0), threefold(0.5 + NEAR, 1.0)
    good: Ends = (0.78, 0.82)
    low: Ends = (0.1, 0.2)
    for first, other in (("heldout_rows_r2", "heldout_layers_r2"), ("heldout_layers_r2", "heldout_rows_r2")):
        yield case(f"{first} above", SUPPORTED, **{first: above, other: good})
        yield case(f"{first} not above", OPEN, **{first: at, other: good})
        yield case(f"{first} below", NULL, **{first: below, other: good})
        yield case(f"{first} not below", OPEN, **{first: nearly, other: good})
    yield case("one held-out R2 alone", OPEN, heldout_rows_r2=good)
    yield case("the fit is above", NULL, heldout_rows_r2=low, in_sample_r2=above)
    yield case("the fit is not shown to be above", OPEN, heldout_rows_r2=low, in_sample_r2=at)
    yield case("not even the fit", CONTRADICTED, heldout_rows_r2=low, in_sample_r2=below)
    yield case("perhaps the fit", OPEN, heldout_rows_r2=low, in_sample_r2=nearly)
    both = {held: good, "heldout_layers_r2": good}
    top = 0.8 + sqrt(3) * 0.02
    bottom = 0.8 - sqrt(3) * 0.02
    yield case("a null within a tenth", NULL, **both, **{twin: (top - 0.1 + NEAR, 0.79)})
    yield case("a null that may be within a tenth", OPEN, **both, **{twin: (top - 0.1 - NEAR, bottom + NEAR)})
    yield case("a null that does not meet it", SUPPORTED, **both, **{twin: (top - 0.1 - NEAR, bottom - NEAR)})


def grown(rows: Mapping[str, Ends], terms: str = "tokens", learned: Ends = (3.0, 3.5 - NEAR)) -> tuple[Score, ...]:
    """A study of `published` beside uniform, whose loss has the interval `learned` beside a table at 3.5 nats."""
    return (
        *planted("", {"nll": learned}, measure="held_out", arm="uniform"),
        *planted("", {"nll": (3.4, 3.6)}, measure="null", arm="token pairs"),
        *planted("", {"share": 1.0}, measure="schedule", arm="published", condition="a", layer=0),
        *planted("", rows, measure="growth", arm="published", against="uniform", condition=terms),
    )


def headlines() -> Iterator[Case]:
    """A figure is reached by an interval that holds it and lies above half of it, or its root for a ratio of losses."""
    for rule, metric, task, figure, least in (
        ("growth_cost", "saving", "flops", 0.54, 0.27),
        ("growth_loss", "loss_ratio", "tokens", 4.7, sqrt(4.7)),
        ("growth_time", "time_saved", "tokens", 0.13, 0.065),
    ):
        for name, verdict, ends in (
            ("below", CONTRADICTED, (least + NEAR, figure - NEAR)),
            ("reached", SUPPORTED, (least + NEAR, figure + NEAR)),
            ("reached by a wide one", OPEN, (least - NEAR, figure + NEAR)),
            ("below by a wide one", CONTRADICTED, (-figure, figure - NEAR)),
        ):
            yield Case(rule, name, grown({metric: ends}, task), verdict)
            # What has not learned decides nothing, whichever way the figure lies.
            unlearned = grown({metric: ends}, task, (3.0, 3.5 + NEAR))
            yield Case(rule, f"{name}, not learned", unlearned, OPEN)
            worse = grown({metric: ends}, task, (3.5 + NEAR, 4.0))
            yield Case(rule, f"{name}, worse than the table", worse, OPEN)
        nobody = tuple(row for row in grown({metric: (least + NEAR, figure + NEAR)}, task) if row.measure != "null")
        yield Case(rule, "no table was counted", nobody, OPEN)


@parametrized(
    [
        *together(), *strategies(), *single_layers(), *correlations(), *types(), *predictions(), *headlines(),
    ]
)  # fmt: skip
def test_every_bar_of_the_claims_about_layers_is_where_it_is(case: Case) -> None:
    case.check()
