"""The report as Markdown: the findings and the main tables, for terminals, papers and logs.

Only text that is safe in a table cell or a sentence is written: what users named is escaped, so that a task called
`a|b` stays one cell.
"""

from __future__ import annotations

from layerwise.plan import SUBLAYERS
from layerwise.report.claims import judged
from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.diagnosis.tables import verdict_rows
from layerwise.report.evidence import DELTA, Evidence, ReportData
from layerwise.report.finding import Finding
from layerwise.report.finetuned.findings import finetuned_findings
from layerwise.report.finetuned.tables import plan_rows
from layerwise.report.frontier.lookup import FrontierScores
from layerwise.report.frontier.tables import frontier_table, headline
from layerwise.report.growth.findings import growth_findings
from layerwise.report.growth.lookup import GrowthScores
from layerwise.report.growth.tables import arm_rows, difference_rows, phase_rows, rate_rows
from layerwise.report.growth.tables import cost_rows as spent_rows
from layerwise.report.page.groups import present_groups
from layerwise.report.page.number_format import between, probability, verdict
from layerwise.report.page.plain_markdown import escaped
from layerwise.report.page.table import Table
from layerwise.report.page.wording import counted, label
from layerwise.report.pretraining.findings import pretraining_findings
from layerwise.report.pretraining.lookup import suite_name
from layerwise.report.pretraining.tables import PARADIGM, PHENOMENON, cost_rows, outcome_rows, study_rows, suite_rows
from layerwise.report.pretraining.tables import benchmark_rows as fine_tuned
from layerwise.report.robustness.findings import sentence, summary, survival
from layerwise.report.robustness.lookup import CONDITIONS, RULES
from layerwise.report.robustness.tables import kept_rows, matrix_rows, merging_rows, order_rows, training_rows
from layerwise.report.sweep.chapters import SWEEP
from layerwise.report.sweep.findings import findings
from layerwise.report.sweep.layers import single_skips
from layerwise.report.sweep.task_tables import benchmark_rows, task_rows
from layerwise.report.sweep.window import half_window
from layerwise.report.timing.chapter import times_table
from layerwise.report.timing.lookup import TimeScores
from layerwise.results.model_name import model_name
from layerwise.results.rows import Score


def markdown(data: ReportData) -> str:
    """Claims and verdicts of a diagnosis; what each arm survives; a frontier; times; findings and plans of a sweep."""
    evidence = Evidence.of(data)
    sections = (
        _title(evidence),
        *_claims(evidence),
        *_diagnosis(evidence),
        *_robustness(evidence),
        *_pretraining(evidence),
        *_fine_tuned_plans(evidence),
        *_growth(evidence.growth),
        *_frontier(evidence),
        *_times(evidence),
        *_sweep(evidence),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _claims(evidence: Evidence) -> tuple[str, ...]:
    claims = [claim for each in judged(evidence) for claim in each.claims]
    lines = [f"- **{escaped(claim.name)}** ({claim.verdict}) {escaped(claim.reasons)}" for claim in claims]
    return ("\n".join(["## Claims", "", *lines]),) if lines else ()


def _diagnosis(evidence: Evidence) -> tuple[str, ...]:
    run = evidence.diagnosis
    if not evidence.is_diagnosis:
        return ()
    return (
        _section("Verdicts", verdict_rows(run)),
        _section("Ablation", _ablation_rows(run)),
    )


def _robustness(evidence: Evidence) -> tuple[str, ...]:
    run = evidence.robustness
    has_own_section = evidence.pretraining.is_pretrained or (run.only_trained and evidence.growth.measures)
    if not run.measures or has_own_section:
        return ()
    matrix = survival(run)
    sentences = [f"- **{escaped(arm)}** {escaped(''.join(sentence(run, matrix, arm)))}" for arm in matrix.cells]
    kept = {(rule, condition): kept_rows(run, rule, condition) for rule in RULES for condition in CONDITIONS}
    return (
        _section("Who survives what", matrix_rows(run)),
        "\n".join([escaped(summary(matrix)), "", *sentences]) if sentences else "",
        _section("Order", order_rows(run)),
        *(
            _section(f"Layers kept, {RULES[rule]}, {CONDITIONS[condition]}", rows)
            for (rule, condition), rows in kept.items()
        ),
        _section("Merging", merging_rows(run)),
        _section("Training", training_rows(run)),
    )


def _pretraining(evidence: Evidence) -> tuple[str, ...]:
    run = evidence.pretraining
    if not run.measures:
        return ()
    sentences = "\n".join(_finding(finding) for finding in pretraining_findings(run))
    return (
        sentences,
        _section("Arms", outcome_rows(run)),
        _section("Differences", study_rows(run)),
        _section("Cost", cost_rows(run)),
        *(
            _section(f"{suite_name(suite)} by {prefix.removesuffix(':')}", suite_rows(run, suite, prefix))
            for suite in run.suites
            for prefix in (PHENOMENON, PARADIGM)
        ),
        *(_section(suite_name(suite), fine_tuned(run, suite)) for suite in run.tasks),
    )


def _fine_tuned_plans(evidence: Evidence) -> tuple[str, ...]:
    run = evidence.finetuned
    return (
        "\n".join(_finding(finding) for finding in finetuned_findings(run, evidence.depth)),
        *(
            _section(f"{suite_name(suite)} under plans, {arm}", plan_rows(run, suite, arm))
            for suite in run.suites
            for arm in run.arms
        ),
    )


def _growth(run: GrowthScores) -> tuple[str, ...]:
    return (
        "\n".join(_finding(finding) for finding in growth_findings(run)),
        _section("Schedules compared", arm_rows(run)),
        _section("Every difference", difference_rows(run)),
        _section("Phases", phase_rows(run)),
        _section("Learning rates", rate_rows(run)),
        _section("Cost", spent_rows(run)),
    )


def _frontier(evidence: Evidence) -> tuple[str, ...]:
    run = FrontierScores.of(evidence.data.scores)
    answers = "\n".join(f"- {escaped(headline(run, setting))}" for setting in run.settings)
    return (answers, *(_section(f"Frontier, {setting}", frontier_table(run, setting)) for setting in run.settings))


def _times(evidence: Evidence) -> tuple[str, ...]:
    run = TimeScores.of(evidence.data.scores)
    return tuple(_section(f"How long a pass takes, {setting}", times_table(run, setting)) for setting in run.settings)


def _finding(finding: Finding) -> str:
    return f"- **{escaped(finding.question)}** ({finding.state}) {escaped(finding.text)}"


def _ablation_rows(run: DiagnosisScores) -> Table:
    """A row a layer: what each intervention costs, the halves of the layer last."""
    columns: dict[str, dict[int, Score]] = {
        label(metric) if part is None else f"{label(metric)}, {part}": run.layers("ablation", metric, part=part)
        for part in (None, *SUBLAYERS)
        for metric in run.metrics("ablation")
    }
    shown = {name: rows for name, rows in columns.items() if rows}
    layers = sorted({layer for rows in shown.values() for layer in rows})
    body = tuple((str(layer), *(_effect(rows.get(layer)) for rows in shown.values())) for layer in layers)
    return Table(("layer", *shown), body)


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
    size = f"{counted(evidence.depth, 'layer')}{plans}, measured" if evidence.depth else "Measured"
    return f"# {model}\n\n{size} on {corpus}."


def _findings(evidence: Evidence) -> str:
    answers = findings(evidence)
    if not answers:
        return "No finding: the run has no effects yet."
    return "\n".join(_finding(finding) for finding in answers)


def _tasks(evidence: Evidence) -> str:
    window = half_window(evidence)
    title = f"Tasks, {counted(window.affected, 'layer')} affected" if window else "Tasks"
    return _section(title, task_rows(evidence))


def _layer_rows(evidence: Evidence) -> Table:
    """A row a layer: what dropping it alone costs on the main task."""
    task = evidence.main_task
    plans = single_skips(evidence) if task else {}
    body = []
    for layer, plan in sorted(plans.items()):
        score = evidence.effect(plan, task, DELTA) if task else None
        if score is not None:
            effect = between(score.value, score.low, score.high, signed=True)
            body.append((str(layer), effect, probability(score.p_adjusted), verdict(score, evidence.data.level)))
    return Table(("layer dropped", "Δ NLL (nats per token)", "adjusted p", "verdict"), tuple(body))


def _plan_rows(evidence: Evidence) -> Table:
    head = ("plan", "strategy", "affected", "evaluations", "stages", "Δ NLL (nats per token)", "adjusted p", "verdict")
    body = []
    for record in evidence.records.values():
        score = evidence.effect(record.plan, evidence.main_task) if evidence.main_task else None
        effect = _effect(score)
        p = probability(None if score is None else score.p_adjusted)
        costs = (str(record.affected), str(record.evaluations), str(record.stages))
        body.append((record.plan, label(record.strategy), *costs, effect, p, evidence.verdict(record.plan)))
    return Table(head, tuple(body))


def _section(title: str, table: Table) -> str:
    """A heading and a table, or nothing when the table has no rows."""
    if not table.body:
        return ""
    return f"## {escaped(title)}\n\n{table.markdown()}"
