"""The claims about layers changed together: that errors accumulate, and that only scaling leaves them whole."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published
from layerwise.report.claims.contrasts import CONTRAST, Contrasts, contrasts
from layerwise.report.claims.heterogeneity.strategies import as_mild, compared, costs
from layerwise.report.claims.power import needed, on_tokens, seen, widest
from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy
from layerwise.report.page.wording import counted, label, listed

MARGIN = 0.2
SURVIVES = 0.2
LEAST_COST = 0.05

ACCUMULATION = Published(
    "error_accumulation",
    "Errors of several layers accumulate nonlinearly",
    "Weights are predictable, and using the predictions fails catastrophically, because errors accumulate nonlinearly.",
    "arXiv 2603.19348, weight predictability (metric 1)",
    "The contrast is the share of what a set of predicted layers costs together that the costs of its layers, one by"
    " one, do not add up to: 1 − S / J. It is decided on the largest evenly spread set; where a model is destroyed a"
    f" loss has a ceiling, and costs cannot add up. The margin is {MARGIN:g}. Supported: the share lies above zero, and"
    " not within the margin. Explained by the null: it is shown to lie within the margin, so that the costs add up and"
    " nothing nonlinear is needed. Contradicted: it lies below zero, and together the errors do less. Anything else is"
    " not resolvable.",
    "It needs the part predictability, with a text.",
)
MANIPULATION = Published(
    "joint_manipulation",
    "Redundant layers survive scaling together, and nothing else",
    "Of five ways to manipulate the redundant layers together, only scaling by 0.9 leaves the model whole (perplexity"
    " +19 %); the others cost millions of percent.",
    "arXiv 2603.19348, manipulation robustness (metric 4)",
    "All layers that cost little one by one (less than 0.2 nats per token, added up; chosen on other text where there"
    " is any) are moved together, each by a tenth of its norm. Supported: scaling costs less than"
    f" {SURVIVES:g} nats, by its interval, and every other strategy more than scaling, by an interval above zero that"
    f" reaches beyond {LEAST_COST:g}. Explained by the null: scaling costs less than that, some other is shown to cost"
    f" no more than {LEAST_COST:g} more at the same size, and at their largest sizes, as published, all cost more:"
    " size, not kind. Contradicted: scaling is shown to cost more than that, or some other is as mild and not even the"
    " unequal comparison favours scaling. Anything else is not resolvable.",
    "It needs the part manipulation: a set of layers that scaling and another strategy move together.",
)


def accumulation(evidence: Evidence) -> Claim:
    """Do predicted layers cost more together than one by one?"""
    sets = accumulated(evidence.diagnosis)
    spread = [subject for subject in sets if subject.startswith("set:")]
    decisive = max(spread, key=_kind_and_size, default=None)
    rows = None
    if decisive is not None:
        rows = contrasts(evidence, ACCUMULATION.key, "joint", "singles", "share", "layers", task=decisive)
    if rows is None:
        return ACCUMULATION.unmeasured()
    share = rows.span("share")
    figures = (
        f"{counted(int(rows.value('layers')), 'predicted layer')} cost {rows.shown('joint')} nats per token together"
        f" and {rows.shown('singles')} one by one{on_tokens([rows['share']])}{_others(evidence, rows)}."
    )
    if share is None:
        return ACCUMULATION.undecided(figures, "The text has too few units for an interval: give more.")
    position = share.position(MARGIN)
    return ACCUMULATION.decided(
        f"{figures} The single costs leave a share of {share} of the joint one.",
        seen(rows["share"], MARGIN, "of the joint cost"),
        (position == "above", SUPPORTED, "Together they cost more than the single costs add up to."),
        (position == "within", BY_NULL, "The single costs add up to the joint one: no accumulation is needed."),
        (position == "below", CONTRADICTED, "Together they cost less than one by one."),
        otherwise=f"The interval holds both answers{needed(rows['share'], MARGIN)}.",
    )


def _others(evidence: Evidence, rows: Contrasts) -> str:
    """What random errors of the same norm leave, and the other sets, and manipulated ones."""
    noise = ""
    if "share_of_noise" in rows:
        noise = f"; of random errors of the same norm a share of {rows.shown('share_of_noise')} is left"
    manipulated = [
        f"{label(task.partition(':')[0])} {moved.shown('share')}"
        for task in manipulations(evidence.diagnosis)
        if not task.startswith("scale")
        and (moved := contrasts(evidence, MANIPULATION.key, "share", "joint", task=task)) is not None
        and moved.value("joint") > SURVIVES
    ]
    joint = f", of manipulated layers {listed(manipulated)}" if manipulated else ""
    return f"{noise}{joint}"


def joint_manipulation(evidence: Evidence) -> Claim:
    """Do the layers that are redundant one by one survive scaling together, and nothing else of its size?"""
    rows = contrasts(evidence, MANIPULATION.key, "layers")
    scaled = contrasts(evidence, MANIPULATION.key, "joint", "singles", task="scale:0.1")
    equal, unequal = compared(rows)
    if rows is None or scaled is None or not equal:
        return MANIPULATION.unmeasured()
    cost = scaled.span("joint")
    figures = (
        f"Scaling {counted(int(rows.value('layers')), 'layer')} by 0.9 together costs {scaled.shown('joint')} nats per"
        f" token{on_tokens([scaled['joint']])}, one by one {tidy(scaled.value('singles'), signed=True)}; beyond it, at"
        f" the same size, {costs(rows, equal)}; at their largest sizes {costs(rows, unequal)}."
    )
    if cost is None:
        return MANIPULATION.undecided(figures, "The text has too few units for an interval: give more.")
    side, positions = cost.against(SURVIVES), rows.positions(*equal, margin=LEAST_COST)
    larger = set(rows.positions(*unequal, margin=LEAST_COST).values())
    mild = as_mild(rows, equal, LEAST_COST)
    least_known = widest(rows[metric] for metric in equal)
    whole = side == "below"
    return MANIPULATION.decided(
        figures,
        seen(least_known, LEAST_COST, "nats beyond scaling"),
        (side == "above", CONTRADICTED, "Scaled together, these layers cost more than what was survived."),
        (
            whole and set(positions.values()) == {"above"},
            SUPPORTED,
            "At equal size scaling alone leaves the set whole.",
        ),
        (
            whole and bool(mild) and larger == {"above"},
            BY_NULL,
            f"At equal size {mild} cost no more; the published comparison gave the others larger changes.",
        ),
        (
            whole and bool(mild) and not larger.isdisjoint(NOT_ABOVE),
            CONTRADICTED,
            f"As mild as scaling at equal size: {mild}.",
        ),
        otherwise=_why_open(rows, equal, unequal, bool(mild))
        if whole
        else f"Whether scaling leaves the set whole is not known{needed(scaled['joint'], abs(cost.value - SURVIVES))}.",
    )


def _why_open(rows: Contrasts, equal: list[str], unequal: list[str], mild: bool) -> str:
    """Why a set that scaling leaves whole decides nothing: the sizes, or the strategies, are not distinguished."""
    if mild:
        more_text = needed(widest(rows[metric] for metric in unequal), LEAST_COST)
        return f"What is as mild at equal size is not shown to cost more when larger{more_text}."
    return f"The strategies are not distinguished{needed(widest(rows[metric] for metric in equal), LEAST_COST)}."


def accumulated(run: DiagnosisScores) -> list[str]:
    """The sets of predicted layers of which the joint cost was compared with the single ones."""
    return _tasks(run, ACCUMULATION.key)


def manipulations(run: DiagnosisScores) -> list[str]:
    """The strategies, each with its size, that moved a set of layers together."""
    return _tasks(run, MANIPULATION.key)


def _tasks(run: DiagnosisScores, claim: str) -> list[str]:
    tasks = {where for (measure, metric, where), of in run.rows.items()
             if measure == CONTRAST and metric == "share" and claim in of}  # fmt: skip
    return sorted(tasks, key=_kind_and_size)


def _kind_and_size(task: str) -> tuple[str, float, str]:
    """Tasks of one kind by their size; what is no size stands first, by its text."""
    kind, _, size = task.partition(":")
    try:
        return kind, float(size), ""
    except ValueError:
        return kind, 0.0, size
