"""The table of the published claims: what each reads, and the cases by which it is decided.

A row has the key of the claim, the facts that its rule reads, and its cases in the order in which they are tried. A
fact is a contrast with the size that counts (`Read(metric, margin)`), or with a bound it is held against
(`Read(metric, margin, bound)`); what is derived from several rows comes from a function of the paper's module.
`certain` names the facts without whose interval nothing is decided, and `number` is what the paper itself reports.
"""

from __future__ import annotations

from dataclasses import replace

from layerwise.report.claims import elc_bert, growth, heterogeneity, layershuffle, painters
from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, OPEN, SUPPORTED
from layerwise.report.claims.contrasts import Read, group, nulls
from layerwise.report.claims.published import ABSENT, Not, Some, case, paper, row, unlearned
from layerwise.report.text.wording import label

GAINED = (
    unlearned(),
    case(BY_NULL, gain="within"),
    case(CONTRADICTED, gain="below"),
    case(OPEN, gain="open"),
    case(OPEN, learned=ABSENT),
    case(SUPPORTED, learned="above"),
    case(BY_NULL, learned=NOT_ABOVE),
)
"""The cases of both gains of learned layer weights."""
SHALLOW = (case(BY_NULL, pairs="within"), case(CONTRADICTED, two_turned=True), case(SUPPORTED, both=True))
"""The cases of both claims about the shallowest slopes."""
HEADLINE = (unlearned(), case(CONTRADICTED, short=True), case(SUPPORTED, reached=True))
"""The cases of the three headlines of growth training."""

ELC_BERT = paper(
    "elc_bert",
    row("worth", elc_bert.worth, certain=("gain",)).by(*GAINED),
    row(
        "grammar",
        elc_bert.grammar,
        certain=("gain",),
        number="0.5 points after 100 million words, −0.1 after 10 million",
    ).by(*GAINED),
    row("pattern", elc_bert.pattern, certain=("equal", "learned")).by(
        unlearned(),
        case(BY_NULL, equal="within"),
        case(CONTRADICTED, equal="below"),
        case(BY_NULL, equal="above", learned=NOT_ABOVE),
        case(SUPPORTED, equal="above", learned="above"),
    ),
    row("alike", elc_bert.alike).by(
        unlearned(),
        case(SUPPORTED, beyond="above"),
        case(BY_NULL, beyond=NOT_ABOVE, raw="above"),
        case(CONTRADICTED, beyond=NOT_ABOVE),
    ),
)
LAYERSHUFFLE = paper(
    "layershuffle",
    row(
        "trained_order",
        {
            "cost": Read("cost", 0.05, bound=0.25),
            "gains": nulls("gain_above", 0.05, item="{0:%} points above {1}"),
            "skill": layershuffle.IN_ORDER,
        },
        certain=("cost", "gains"),
        number="19.84 points",
    ).by(
        unlearned(),
        case(CONTRADICTED, cost="above"),
        case(CONTRADICTED, gains=Some(("below",))),
        case(BY_NULL, cost="below", gains=Some(("within",))),
        case(SUPPORTED, cost="below", gains="above"),
    ),
    row(
        "collapse",
        {"free": Read("random_order", 0.05, bound=0.05), "skill": replace(layershuffle.IN_ORDER, of="")},
        certain=("free", "skill"),
        number="0.03 points above chance in random order, 82.51 in order",
    ).by(unlearned(), case(CONTRADICTED, free="above"), case(SUPPORTED, free="below")),
    row(
        "pruning",
        {
            "beside": Read("spared_above@baseline", 0.1),
            "spared": nulls("spared_above", 0.1),
            "lost": Read("lost", optional=True),
            "rivals": nulls("lost", item="{1} {0:%} %"),
            "skill": layershuffle.IN_ORDER,
        },
        certain=("lost", "spared"),
    ).by(
        unlearned(),
        case(CONTRADICTED, spared=Some(("below",))),
        case(BY_NULL, spared=Some(("within",))),
        case(SUPPORTED, spared="above"),
    ),
    row("positions", layershuffle.positions, certain=("short",), number="99.99 %").by(
        unlearned(),
        case(CONTRADICTED, short="above"),
        case(BY_NULL, short="below", probes=Some(("below",))),
        case(SUPPORTED, short="below", probes="above"),
        case(OPEN, short="open"),
        case(OPEN, probes=ABSENT),
    ),
    row(
        "position_informed",
        layershuffle.position_informed,
        certain=("skill", "gains"),
        number="layershuffle-position 0.84, layershuffle-predict −1.59 points",
    ).by(unlearned(), case(CONTRADICTED, differs=True), case(SUPPORTED, gains="within")),
    row(
        "merging",
        {
            "loss": Read("loss", 0.05, bound=0.05),
            "skill": Read("skill", bound=0.05, optional=True),
            "rivals": nulls("loss", 0.05, bound=0.05, item="{1} {0:%}", lead=", of "),
            "skills": nulls("skill", bound=0.05),
        },
        certain=("loss", "skill"),
        number="3.09 points",
    ).by(
        unlearned(),
        case(OPEN, skills=Some(("below", "open"))),
        case(CONTRADICTED, loss="above"),
        case(BY_NULL, loss="below", rivals=Some(("below",))),
        case(SUPPORTED, loss="below", rivals="above"),
        case(OPEN, rivals=ABSENT),
    ),
    row("switching_off", layershuffle.switching_off, certain=("relation", "own")).by(
        unlearned(),
        case(CONTRADICTED, relation="below"),
        case(BY_NULL, relation="above", rivals=Some(("above",))),
        case(BY_NULL, relation="above", other="within"),
        case(SUPPORTED, relation="above", shuffled_apart=True, own="above", rivals="below"),
        case(OPEN, rivals=ABSENT),
    ),
)
PAINTERS = paper(
    "painters",
    row(
        "same_space",
        {
            "published": Read("published", 0.02),
            **{side: Read(side, 0.02) for side in painters.SIDES},
            "sides": Read({side: side for side in painters.SIDES}, 0.02),
            "every": group("published", *painters.SIDES, margin=0.02),
        },
    ).by(
        case(CONTRADICTED, published=NOT_ABOVE),
        case(BY_NULL, published="above", sides=Some(NOT_ABOVE)),
        case(SUPPORTED, every="above"),
    ),
    row("three_zones", painters.three_zones, number="three zones").by(
        case(SUPPORTED, three=True, least="above"),
        case(CONTRADICTED, other=True, least="above"),
        case(BY_NULL, one=True, beyond="below"),
        case(OPEN, one=True),
    ),
    row("one_ending", painters.one_ending, number="one ending layer").by(
        case(SUPPORTED, borders="above", one_layer=True),
        case(CONTRADICTED, borders="above"),
        case(BY_NULL, one=True, beyond="below"),
        case(OPEN, one=True),
    ),
    row("middle", painters.middle).by(
        case(CONTRADICTED, ratio=("within", "above")),
        case(OPEN, ratio="open"),
        case(OPEN, beyond=ABSENT),
        case(SUPPORTED, beyond="below"),
        case(BY_NULL, beyond=("within", "above")),
    ),
    row("all_needed", {"saved": Read("saved", 0.25), "rise": Read("rise", 0.01)}).by(
        case(CONTRADICTED, rise=NOT_ABOVE),
        case(CONTRADICTED, saved="below"),
        case(SUPPORTED, rise="above", saved="above"),
        case(BY_NULL, rise="above", saved="within"),
    ),
    row(
        "same_function", {"more": Read("middle_repeat:skip"), "harm": Read("middle_repeat", 0.01)}, words=painters.costs
    ).by(
        case(CONTRADICTED, harm=NOT_ABOVE),
        case(CONTRADICTED, more="below"),
        case(SUPPORTED, more="above"),
        case(BY_NULL, more="within", harm="above"),
    ),
    row(
        "repeat_at_chance",
        {
            "left": Read("middle_repeat", 0.1),
            "above_chance": Read("middle_repeat", 0.1, bound=0.1),
            "absent": Read("skip", 0.1),
        },
        number="the random baseline, 0 of the scale",
    ).by(
        case(CONTRADICTED, above_chance="above"),
        case(BY_NULL, left="within", absent=NOT_ABOVE),
        case(SUPPORTED, left="within", absent="above"),
    ),
    row(
        "any_order",
        {
            "costs": Read({label(order): order for order in painters.ORDERS}),
            "less": Read({label(order): f"skip:{order}" for order in painters.ORDERS}),
            **{order: Read(f"skip:{order}") for order in painters.ORDERS},
            "every": group(*(f"skip:{order}" for order in painters.ORDERS), *painters.ORDERS),
        },
        words=painters.costs,
    ).by(
        case(CONTRADICTED, costs=Some(NOT_ABOVE)),
        case(CONTRADICTED, less=Some(("below",))),
        case(BY_NULL, less=Some(("within",))),
        case(SUPPORTED, every="above"),
    ),
    row("graceful", painters.graceful).by(
        case(CONTRADICTED, abrupt=True),
        case(CONTRADICTED, worse=True),
        case(BY_NULL, same=True),
        case(SUPPORTED, sure=True),
    ),
    row(
        "parallel",
        {
            "skipped": Read("skip:parallel"),
            "turned": Read("parallel:reverse"),
            "both": group("skip:parallel", "parallel:reverse"),
        },
        words=painters.costs,
    ).by(
        case(CONTRADICTED, skipped="below"),
        case(BY_NULL, skipped="within"),
        case(CONTRADICTED, turned=NOT_ABOVE),
        case(SUPPORTED, both="above"),
    ),
    row("fragile", painters.fragile).by(
        case(CONTRADICTED, another=True),
        case(OPEN, gsm8k=ABSENT),
        case(BY_NULL, falls="within"),
        case(CONTRADICTED, gsm8k=NOT_ABOVE),
        case(SUPPORTED, some=True),
    ),
    row("order_by_task", painters.order_by_task).by(
        case(CONTRADICTED, less="below"),
        case(OPEN, less=Not("above")),
        case(OPEN, ratio=ABSENT),
        case(SUPPORTED, ratio="above"),
        case(BY_NULL, ratio=NOT_ABOVE),
    ),
    row("order_by_benchmark", painters.order_by_benchmark, certain=("less", "ratio")).by(
        case(CONTRADICTED, less="below"),
        case(CONTRADICTED, less="within"),
        case(SUPPORTED, less="above", ratio="above"),
        case(BY_NULL, less="above", ratio=NOT_ABOVE),
        case(OPEN, less=Not("above")),
    ),
    row(
        "looping",
        {
            "helps": Read("parallel:looped_parallel"),
            "gain": Read(
                {"": "gain:looped_parallel"}, optional=True, item="one with a gain of 3 {0:+} above them", lead=", "
            ),
            "measured": group("parallel:looped_parallel", "gain:looped_parallel", optional=True),
        },
        words=painters.costs,
    ).by(
        case(CONTRADICTED, helps=NOT_ABOVE),
        case(BY_NULL, helps="above", gain=NOT_ABOVE),
        case(SUPPORTED, helps="above", gain="above"),
        case(SUPPORTED, helps="above", gain=ABSENT),
    ),
    row("loop_count", painters.loop_count).by(
        case(CONTRADICTED, slope=NOT_ABOVE, ended=False),
        case(BY_NULL, slope="above", gain=NOT_ABOVE),
        case(SUPPORTED, slope="above", gain="above"),
        case(SUPPORTED, slope="above", gain=ABSENT),
        case(OPEN, ended=True),
    ),
    row("ranking", painters.ranking).by(
        case(BY_NULL, steps="within"), case(SUPPORTED, as_published=True), case(CONTRADICTED, turned=True)
    ),
    row("shallowest", painters.shallowest).by(*SHALLOW),
    row("shallowest_on_benchmarks", painters.shallowest_on_benchmarks).by(*SHALLOW),
)
HETEROGENEITY = paper(
    "heterogeneity",
    row("predictability", heterogeneity.predictability, number="R² 0.91 inside the sample").by(
        case(BY_NULL, strong=True, as_good=True),
        case(SUPPORTED, strong=True, beyond=True),
        case(BY_NULL, weak=True, fit_above=True),
        case(CONTRADICTED, weak=True, fit_below=True),
        case(OPEN, strong=True),
    ),
    row("oscillation", heterogeneity.oscillation, certain=("excess",), number="−0.50 at lag 1").by(
        case(BY_NULL, excess="within"), case(SUPPORTED, excess="below"), case(CONTRADICTED, excess="above")
    ),
    row(
        "universal_oscillation",
        heterogeneity.universal_oscillation,
        certain=("every",),
        number="about −0.50 at lag 1 in every type",
    ).by(
        case(BY_NULL, every="within"),
        case(SUPPORTED, every="below"),
        case(CONTRADICTED, every=Some(("above",))),
        case(CONTRADICTED, every=("below", "within")),
    ),
    row(
        "joint_collapse",
        {
            "joint": Read("joint", 0.0, bound=1.0),
            "singles": Read("beyond_singles", 0.2),
            "noise": Read("beyond_noise", 0.2),
            "layers": Read("layers"),
            "beyond": group("beyond_singles", "beyond_noise", together=1, margin=0.2),
        },
        certain=("joint", "beyond"),
        number="more than 8.4 nats together (perplexity above 100,000, of 22.6)",
    ).by(
        case(CONTRADICTED, joint="below"),
        case(SUPPORTED, joint="above", beyond="above"),
        case(BY_NULL, joint="above", singles=NOT_ABOVE),
        case(BY_NULL, joint="above", noise=NOT_ABOVE),
        case(OPEN, joint="open"),
    ),
    row("error_accumulation", heterogeneity.accumulation, certain=("share",)).by(
        case(SUPPORTED, share="above"), case(BY_NULL, share="within"), case(CONTRADICTED, share="below")
    ),
    row("core", heterogeneity.core, number="layers 8–11 of 30").by(
        case(SUPPORTED, ranges=Some(("above",))),
        case(BY_NULL, ranges="below", damaged=True),
        case(CONTRADICTED, ranges="below"),
    ),
    row("anti_layers", heterogeneity.anti_layers, number="−0.006 nats without layer 14 or 17").by(
        case(SUPPORTED, harmful=True), case(BY_NULL, excluded=True, naive=True), case(CONTRADICTED, excluded=True)
    ),
    row(
        "importance_range",
        heterogeneity.importance_range,
        certain=("own", "published"),
        number="10^7 to the one nearest to zero",
    ).by(
        case(SUPPORTED, own="above"),
        case(BY_NULL, own="below", beyond_to_least=True),
        case(CONTRADICTED, own="below", published="below"),
        case(OPEN, own="below"),
    ),
    row(
        "redundant_sets",
        {
            "joint": Read("joint", 0.0, bound=0.2),
            "spared": Read("spared", 0.05),
            "layers": Read("layers"),
            "singles": Read("singles"),
        },
        certain=("joint", "spared"),
        number="0.17 nats at most (perplexity +19 %)",
    ).by(
        case(CONTRADICTED, joint="above"),
        case(SUPPORTED, joint="below", spared="above"),
        case(BY_NULL, joint="below", spared=NOT_ABOVE),
        case(OPEN, joint="open"),
    ),
    row("recovery", heterogeneity.recovery).by(
        case(SUPPORTED, among="above", published=Not("below")),
        case(BY_NULL, published="above", among=NOT_ABOVE),
        case(CONTRADICTED, published=NOT_ABOVE, among=Not("above")),
    ),
    row("scaling", heterogeneity.scaling, number="scaling itself 0.17 nats (perplexity +19 %)").by(
        case(SUPPORTED, equal="above"),
        case(BY_NULL, equal=Some(NOT_ABOVE), unequal="above"),
        case(CONTRADICTED, equal=Some(NOT_ABOVE), unequal=Some(NOT_ABOVE)),
    ),
    row(
        "joint_manipulation",
        heterogeneity.joint_manipulation,
        certain=("joint",),
        number="0.17 nats (perplexity +19 %)",
    ).by(
        case(CONTRADICTED, joint="above"),
        case(OPEN, joint="open"),
        case(SUPPORTED, equal="above"),
        case(BY_NULL, equal=Some(NOT_ABOVE), unequal="above"),
        case(CONTRADICTED, equal=Some(NOT_ABOVE), unequal=Some(NOT_ABOVE)),
        case(OPEN, equal=Some(NOT_ABOVE)),
    ),
    row("agreement", heterogeneity.agreement).by(
        case(SUPPORTED, apart="above"),
        case(BY_NULL, together="above", apart=NOT_ABOVE),
        case(CONTRADICTED, together=Not("open"), apart=NOT_ABOVE),
    ),
    row("growth_cost", growth.cost, certain=("number",), number="54 %").by(*HEADLINE),
    row("growth_loss", growth.loss, certain=("number",), number="4.7 times").by(*HEADLINE),
    row("growth_time", growth.time, certain=("number",), number="13 %").by(*HEADLINE),
)

PAPERS = (ELC_BERT, LAYERSHUFFLE, PAINTERS, HETEROGENEITY)
"""The founding papers, in the order in which they were published."""
CLAIMS = {claim.key: claim for paper_ in PAPERS for claim in paper_.claims}
"""Every claim by its key."""
