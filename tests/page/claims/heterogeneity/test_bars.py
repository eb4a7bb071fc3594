"""Every threshold of the heterogeneity findings is exact."""

from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Any

from layerwise.results.rows import Score
from page.claims import bars
from page.claims.bars import FAR, NEAR, ONE_SIDED, POSITIVE, SUPPORT_IS_NULL, Case, Interval, Rows
from page.claims.truths import CONTRADICTED, INCONCLUSIVE, NOT_MEASURED, NULL, SUPPORTED

CLEAR: Interval = (0.4, 0.8)
SAME: Interval = (-0.001, 0.001)


def beyond_scaling(claim: str, **noise: Interval) -> tuple[Score, ...]:
    zero: Rows = {"equal": CLEAR, "unequal": CLEAR}
    return (
        *bars.plant_rows(claim, {**zero, **noise}, condition="noise"),
        *bars.plant_rows(claim, zero, condition="zero"),
    )


def strategies() -> Iterator[Case]:
    yield from bars.vary_interval(
        "scaling",
        "equal",
        bars.place_around_margin(0.01),
        ONE_SIDED,
        lambda ends: beyond_scaling("scaling", equal=ends),
    )
    yield from bars.vary_interval(
        "scaling",
        "unequal",
        bars.place_around_margin(0.01),
        SUPPORT_IS_NULL,
        lambda ends: beyond_scaling("scaling", equal=SAME, unequal=ends),
    )


def single_layers() -> Iterator[Case]:
    core = {"layer": 3, "to_layer": 4}
    yield from bars.vary_interval(
        "core",
        "skip",
        bars.place_around_bound(0.0),
        POSITIVE,
        lambda ends: bars.plant_rows("core", {"skip_excess": ends}, **core),
    )
    # It is the damage only where published damage shows a core and random weights of equal norm nearly do.
    for average, random, verdict in ((NEAR, -NEAR, NULL), (-NEAR, -NEAR, CONTRADICTED), (NEAR, NEAR, CONTRADICTED)):
        rows: Rows = {
            "skip_excess": (-0.5, -NEAR),
            "average_excess": (average, FAR),
            "average_over_random": (-FAR, random),
        }
        yield Case("core", f"damage {average:g} {random:g}", bars.plant_rows("core", rows, **core), verdict)

    for low, naive, verdict in (
        (-0.006 + NEAR, 0.001, CONTRADICTED),
        (-0.006 - NEAR, 0.001, INCONCLUSIVE),
        (-0.006 + NEAR, -NEAR, NULL),
        (-0.006 - NEAR, -NEAR, INCONCLUSIVE),
        (-0.006 + NEAR, NEAR, CONTRADICTED),
    ):
        judged = [Score("verdict", "no_effect", 0.0, low, 0.01, layer=layer) for layer in range(12)]
        skipped = Score("ablation", "skip", -0.001, -0.002, naive, layer=3)
        yield Case("anti_layers", f"low {low:g} {naive:g}", (*judged, skipped), verdict)
    harmful = Score("verdict", "harmful", -0.01, -0.02, -0.001, layer=3)
    yield Case("anti_layers", "harmful", (harmful,), SUPPORTED)
    yield Case("anti_layers", "an effect is no verdict", (skipped,), NOT_MEASURED)


def scored(measure: str, rows: Mapping[str, Interval | float], **columns: Any) -> tuple[Score, ...]:
    return bars.plant_rows("", rows, measure=measure, **columns)


def correlations() -> Iterator[Case]:
    def recovered(published: Interval, among: Interval) -> tuple[Score, ...]:
        return (
            *scored(
                "recovery", {"spearman_published": published, "layers": 30.0}, condition="noise_50", variant="layer"
            ),
            *scored("recovery", {"spearman": among, "layers": 30.0}, condition="equal_damage", variant="layer"),
        )

    published = {"above": SUPPORTED, "within": SUPPORTED, "below": INCONCLUSIVE, "open": SUPPORTED}
    where = bars.place_around_margin(0.5)
    yield from bars.vary_interval("recovery", "among", where, ONE_SIDED, lambda ends: recovered(CLEAR, ends))
    yield from bars.vary_interval("recovery", "published", where, published, lambda ends: recovered(ends, CLEAR))
    yield from bars.vary_interval(
        "recovery", "published, none at equal damage", where, SUPPORT_IS_NULL, lambda ends: recovered(ends, SAME)
    )

    lag = {"below": SUPPORTED, "within": NULL, "above": CONTRADICTED, "open": INCONCLUSIVE}
    yield from bars.vary_interval("oscillation", "", bars.place_around_margin(0.1), lag, lagged)


def lagged(ends: Interval) -> tuple[Score, ...]:
    return scored("deltas", {"inconclusive": ends, "correlation": -0.5}, distance=1)


RANDOM_INIT = "random_init"


def r_squared(**rows: Interval) -> tuple[Score, ...]:
    usual: dict[str, Interval | float] = {"in_sample_r2": (0.8, 0.9)}
    untrained = rows.pop(RANDOM_INIT, None)
    null: Rows = {} if untrained is None else {"heldout_rows_r2": untrained}
    return (*scored("predictability", {**usual, **rows}), *scored("predictability", null, against="random_init"))


def threefold(end: float, way: float, half: float = 0.02) -> Interval:
    value = end - way * sqrt(3) * half
    return value - half, value + half


def predictions() -> Iterator[Case]:
    held, untrained = "heldout_rows_r2", RANDOM_INIT

    def case(name: str, verdict: str, **rows: Interval) -> Case:
        return Case("predictability", name, r_squared(**rows), verdict)

    above, at = threefold(0.5 + NEAR, -1.0), threefold(0.5 - NEAR, -1.0)
    below, nearly = threefold(0.5 - NEAR, 1.0), threefold(0.5 + NEAR, 1.0)
    good: Interval = (0.78, 0.82)
    low: Interval = (0.1, 0.2)
    for first, other in (("heldout_rows_r2", "heldout_layers_r2"), ("heldout_layers_r2", "heldout_rows_r2")):
        yield case(f"{first} above", SUPPORTED, **{first: above, other: good})
        yield case(f"{first} not above", INCONCLUSIVE, **{first: at, other: good})
        yield case(f"{first} below", NULL, **{first: below, other: good})
        yield case(f"{first} not below", INCONCLUSIVE, **{first: nearly, other: good})
    yield case("one held-out R2 alone", INCONCLUSIVE, heldout_rows_r2=good)
    yield case("the fit is above", NULL, heldout_rows_r2=low, in_sample_r2=above)
    yield case("the fit is not shown to be above", INCONCLUSIVE, heldout_rows_r2=low, in_sample_r2=at)
    yield case("not even the fit", CONTRADICTED, heldout_rows_r2=low, in_sample_r2=below)
    yield case("perhaps the fit", INCONCLUSIVE, heldout_rows_r2=low, in_sample_r2=nearly)
    both = {held: good, "heldout_layers_r2": good}
    top = 0.8 + sqrt(3) * 0.02
    bottom = 0.8 - sqrt(3) * 0.02
    yield case("a null within a tenth", NULL, **both, **{untrained: (top - 0.1 + NEAR, 0.79)})
    yield case(
        "a null that may be within a tenth", INCONCLUSIVE, **both, **{untrained: (top - 0.1 - NEAR, bottom + NEAR)}
    )
    yield case("a null that does not meet it", SUPPORTED, **both, **{untrained: (top - 0.1 - NEAR, bottom - NEAR)})


def grown(ends: Interval, learned: Interval = (3.0, 3.5 - NEAR)) -> tuple[Score, ...]:
    return (
        *scored("held_out", {"nll": learned}, variant="uniform"),
        *scored("null", {"nll": (3.4, 3.6)}, variant="bigrams"),
        *scored("schedule", {"share": 1.0}, variant="published", condition="a", layer=0),
        *scored("growth", {"loss_ratio": ends}, variant="published", against="uniform", unit="tokens"),
    )


def headlines() -> Iterator[Case]:
    least = sqrt(4.7)
    for name, verdict, ends in (
        ("below", CONTRADICTED, (least + NEAR, 4.7 - NEAR)),
        ("reached", SUPPORTED, (least + NEAR, 4.7 + NEAR)),
        ("reached by a wide one", INCONCLUSIVE, (least - NEAR, 4.7 + NEAR)),
        ("below by a wide one", CONTRADICTED, (-4.7, 4.7 - NEAR)),
    ):
        yield Case("growth_loss", name, grown(ends), verdict)
        for learned in ((3.0, 3.5 + NEAR), (3.5 + NEAR, 4.0)):
            yield Case("growth_loss", f"{name}, not learned {learned}", grown(ends, learned), INCONCLUSIVE)
    without_baseline = tuple(row for row in grown((least + NEAR, 4.7 + NEAR)) if row.measure != "null")
    yield Case("growth_loss", "no bigram baseline", without_baseline, INCONCLUSIVE)


test_every_threshold_is_exact = bars.make_exact_test(
    strategies(), single_layers(), correlations(), predictions(), headlines()
)
test_an_unfinished_training_contradicts_nothing = bars.make_unfinished_test(
    {"growth_loss": (grown((0.9, 1.1)), "published")}
)
