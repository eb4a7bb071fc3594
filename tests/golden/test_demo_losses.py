"""The demo model's losses under seven plans equal the committed ones."""

import json

import pytest

from golden.demo_losses import GOLDEN, PLANS, losses


def test_the_demo_model_gives_the_committed_losses() -> None:
    golden = json.loads(GOLDEN.read_text())
    found = losses()
    assert set(found) == set(golden) == set(PLANS)
    for plan, tasks in golden.items():
        assert found[plan] == pytest.approx(tasks, rel=1e-4), plan
    # Equal numbers for all plans would detect nothing.
    assert len({round(sum(tasks.values()), 3) for tasks in golden.values()}) == len(PLANS)
