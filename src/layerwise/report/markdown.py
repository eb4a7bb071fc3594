"""The report as Markdown: the findings and the main tables, for terminals, papers and logs.

Only text that is safe in a table cell or a sentence is written: what users named is escaped, so that a task called
`a|b` stays one cell.
"""

from __future__ import annotations

from layerwise.plan import PARTS
from layerwise.report.accounts import PARADIGM, PHENOMENON, cost_rows, outcome_rows, study_rows, suite_rows
from layerwise.report.accounts import benchmark_rows as fine_tuned
from layerwise.report.chapters import present_groups
from layerwise.report.chapters.sweep import SWEEP
from layerwise.report.claims import Claim, judged
from layerwise.report.data import DELTA, Evidence, ReportData
from layerwise.report.diagnosis import Diagnosis
from layerwise.report.gain import gain
from layerwise.report.growth import Growth
from layerwise.report.headline import Finding, findings
from layerwise.report.layers import single_skips
from layerwise.report.ledger import arm_rows, difference_rows, phase_rows, rate_rows
from layerwise.report.ledger import cost_rows as spent_rows
from layerwise.report.notation import between, probability, verdict
from layerwise.report.plain_markdown import escaped, table
from layerwise.report.pretraining import suite_name
from layerwise.report.robustness import CONDITIONS, RULES
from layerwise.report.standings import kept_rows, matrix_rows, merging_rows, order_rows, training_rows
from layerwise.report.survival import sentence, summary, survival
from layerwise.report.tasks import Rows, benchmark_rows, task_rows
from layerwise.report.verdicts import verdict_rows
from layerwise.report.window import half_window
from layerwise.report.wording import counted, label
from layerwise.report.worth import worth
from layerwise.results.model_name import model_name
from layerwise.results.rows import Score


def markdown(data: ReportData) -> str:
    """Claims and verdicts of a diagnosis; what each arm survives; findings, tasks, layers and plans of a sweep."""
    evidence = Evidence.of(data)
    sections = (
        _title(evidence),
        *_claims(evidence),
        *_diagnosis(evidence),
        *_robustness(evidence),
        *_pretraining(evidence),
        *_growth(evidence.growth),
        *_sweep(evidence),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _claims(evidence: Evidence) -> tuple[str, ...]:
    told = [claim for each in judged(evidence) for claim in each.claims]
    lines = [f"- **{escaped(claim.name)}** ({claim.verdict}) {escaped(_reasons(claim))}" for claim in told]
    return ("\n".join(["## Claims", "", *lines]),) if lines else ()


def _reasons(claim: Claim) -> str:
    return " ".join(part for part in (claim.figures, claim.why, claim.power) if part)


def _diagnosis(evidence: Evidence) -> tuple[str, ...]:
    found = evidence.diagnosis
    if not evidence.is_diagnosis:
        return ()
    return (
        _section("Verdicts", verdict_rows(found)),
        _section("Ablation", _ablation_rows(found)),
    )


def _robustness(evidence: Evidence) -> tuple[str, ...]:
    found = evidence.robustness
    told_elsewhere = evidence.pretraining.is_pretrained or (found.only_trained and evidence.growth.measures)
    if not found.measures or told_elsewhere:
        return ()
    matrix = survival(found)
    told = [f"- **{escaped(arm)}** {escaped(''.join(sentence(found, matrix, arm)))}" for arm in matrix.cells]
    kept = {(rule, condition): kept_rows(found, rule, condition) for rule in RULES for condition in CONDITIONS}
    return (
        _section("Who survives what", matrix_rows(found)),
        "\n".join([escaped(summary(matrix)), "", *told]) if told else "",
        _section("Order", order_rows(found)),
        *(
            _section(f"Layers kept, {RULES[rule]}, {CONDITIONS[condition]}", rows)
            for (rule, condition), rows in kept.items()
        ),
        _section("Merging", merging_rows(found)),
        _section("Training", training_rows(found)),
    )


def _pretraining(evidence: Evidence) -> tuple[str, ...]:
    found = evidence.pretraining
    if not found.measures:
        return ()
    told = "\n".join(_finding(finding) for finding in worth(found))
    return (
        told,
        _section("Arms", outcome_rows(found)),
        _section("Differences", study_rows(found)),
        _section("Cost", cost_rows(found)),
        *(
            _section(f"{suite_name(suite)} by {prefix.removesuffix(':')}", suite_rows(found, suite, prefix))
            for suite in found.suites
            for prefix in (PHENOMENON, PARADIGM)
        ),
        *(_section(suite_name(suite), fine_tuned(found, suite)) for suite in found.tasks),
    )


def _growth(found: Growth) -> tuple[str, ...]:
    return (
        "\n".join(_finding(finding) for finding in gain(found)),
        _section("Schedules compared", arm_rows(found)),
        _section("Every difference", difference_rows(found)),
        _section("Phases", phase_rows(found)),
        _section("Learning rates", rate_rows(found)),
        _section("Cost", spent_rows(found)),
    )


def _finding(finding: Finding) -> str:
    return f"- **{escaped(finding.question)}** ({finding.state}) {escaped(finding.text)}"


def _ablation_rows(found: Diagnosis) -> Rows:
    """A row a layer: what each intervention costs, the halves of the layer last."""
    columns: dict[str, dict[int, Score]] = {
        label(metric) if part is None else f"{label(metric)}, {part}": found.layers("ablation", metric, part=part)
        for part in (None, *PARTS)
        for metric in found.metrics("ablation")
    }
    shown = {name: rows for name, rows in columns.items() if rows}
    layers = sorted({layer for rows in shown.values() for layer in rows})
    body = tuple((str(layer), *(_effect(rows.get(layer)) for rows in shown.values())) for layer in layers)
    return Rows(("layer", *shown), body)


def _effect(score: Score | None) -> str:
    return "–" if score is None else between(score.value, score.low, score.high, signed=True)


def _sweep(evidence: Evidence) -> tuple[str, ...]:
    if not any(group is SWEEP for group in present_groups(evidence)):
        return ()
    return (
        _findings(evidence),
        _tasks(evidence),
        _section("Layers", _layer_rows(evidence)),
        _section("Benchmarks", benchmark_rows(evidence)),
        _section("Plans", _plan_rows(evidence)),
    )


def _title(evidence: Evidence) -> str:
    model = escaped(model_name(str(evidence.data.manifest.get("model") or "unnamed model")))
    corpus = escaped(str(evidence.data.manifest.get("corpus") or "an unnamed corpus"))
    plans = f", {counted(len(evidence.records), 'plan')}" if evidence.records else ""
    size = f"{counted(evidence.depth, 'layer')}{plans}"
    return f"# {model}\n\n{size}, measured on {corpus}."


def _findings(evidence: Evidence) -> str:
    found = findings(evidence)
    if not found:
        return "No finding: the run has no effects yet."
    return "\n".join(_finding(finding) for finding in found)


def _tasks(evidence: Evidence) -> str:
    window = half_window(evidence)
    title = f"Tasks, {counted(window.affected, 'layer')} affected" if window else "Tasks"
    return _section(title, task_rows(evidence))


def _layer_rows(evidence: Evidence) -> Rows:
    """A row a layer: what dropping it alone costs on the main task."""
    task = evidence.main_task
    plans = single_skips(evidence) if task else {}
    body = []
    for layer, plan in sorted(plans.items()):
        score = evidence.effect(plan, task, DELTA) if task else None
        if score is not None:
            effect = between(score.value, score.low, score.high, signed=True)
            body.append((str(layer), effect, probability(score.p_adjusted), verdict(score, evidence.data.level)))
    return Rows(("layer dropped", "Δ NLL (nats per token)", "adjusted p", "verdict"), tuple(body))


def _plan_rows(evidence: Evidence) -> Rows:
    head = ("plan", "strategy", "affected", "evaluations", "stages", "Δ NLL (nats per token)", "adjusted p", "verdict")
    body = []
    for record in evidence.records.values():
        score = evidence.effect(record.plan, evidence.main_task) if evidence.main_task else None
        effect = _effect(score)
        p = probability(None if score is None else score.p_adjusted)
        costs = (str(record.affected), str(record.evaluations), str(record.stages))
        body.append((record.plan, label(record.strategy), *costs, effect, p, evidence.told(record.plan)))
    return Rows(head, tuple(body))


def _section(title: str, rows: Rows) -> str:
    """A heading and a table, or nothing when the table has no rows."""
    if not rows.body:
        return ""
    return f"## {escaped(title)}\n\n{table(rows.head, rows.body)}"
