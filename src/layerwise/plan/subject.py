"""The subject of a row that is of a model under a plan: `0-9 15-23 of bert/0`.

A row of a sweep is of one model, and its subject is the plan. Where several models are evaluated, each under several
plans, the subject names both: the plan, then the model's own label.
"""

from __future__ import annotations

from layerwise.errors import PlanError
from layerwise.plan.plan import Plan

_OF = " of "


def under_plan(plan: Plan | str | None, label: str) -> str:
    """The subject of the model called `label` under a plan; the label alone for the model as trained.

    >>> under_plan(Plan.parse("0-9 15-23"), "bert/0"), under_plan(None, "bert/0")
    ('0-9 15-23 of bert/0', 'bert/0')
    """
    return label if plan is None else f"{plan}{_OF}{label}"


def plan_and_label(subject: str) -> tuple[str | None, str]:
    """The plan of a subject, `None` where it is of a model as trained, and the label of the model.

    >>> plan_and_label("0 (1|2)*3 3 of elc/1.0"), plan_and_label("a model of mine/0")
    (('0 (1|2)*3 3', 'elc/1.0'), (None, 'a model of mine/0'))
    """
    plan, of, label = subject.partition(_OF)
    if not of:
        return None, subject
    try:
        Plan.parse(plan)
    except PlanError:
        return None, subject
    return plan, label
