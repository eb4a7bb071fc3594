"""The router: what it is fitted to, how its penalty meets a limit, and its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.preprocessing import StandardScaler

from layerwise.errors import DataError
from layerwise.search.routing import router as module
from layerwise.search.routing.router import FORMAT, PlanRouter
from search.routing.planted_routing import PLANS, world


def test_the_predictions_that_set_the_penalty_have_not_seen_their_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STRENGTHS", np.array([3.0]))
    table = world(40, 0, effect=1.0)
    targets = table.scores - table.scores.mean(axis=1, keepdims=True)
    features = StandardScaler().fit_transform(table.features)
    expected = cross_val_predict(Ridge(3.0), features, targets, cv=LeaveOneOut())
    router, left_out = table.fit
    np.testing.assert_allclose(left_out, expected, atol=1e-9)
    predicted = table.features @ router.weights + router.intercept
    np.testing.assert_allclose(predicted, Ridge(3.0).fit(features, targets).predict(features), atol=1e-9)


def test_what_makes_a_prompt_hard_for_all_plans_does_not_move_the_choice() -> None:
    table = world(60, 0, effect=1.0)
    harder = replace(table, scores=table.scores - 5 * table.features[:, :1])
    np.testing.assert_allclose(harder.router().weights, table.router().weights, atol=1e-9)


def test_a_lower_limit_chooses_cheaper_plans_and_the_lowest_the_cheapest() -> None:
    table = world(200, 1, effect=2.0)
    free, left_out = table.fit
    layers = free.layers
    spent = []
    for limit in (12.0, 11.0, 10.0, 8.0, 1.0):
        router = table.router(limit)
        spent.append(layers[(left_out - router.penalty * layers).argmax(axis=1)].mean())
        assert spent[-1] <= max(limit, layers.min())
    assert spent == sorted(spent, reverse=True)
    assert spent[-1] == layers.min()


def test_a_feature_that_determines_the_plan_is_used() -> None:
    table = world(600, 2, effect=4.0)
    choices = table.router(11.0).choices(table.features)
    better = np.where(table.features[:, 1] > 0, 2, 3)
    either = np.isin(choices, (2, 3))  # where the feature says little, another plan may be the better bargain
    assert either.mean() > 0.6
    assert (choices == better)[either].mean() > 0.95


def test_a_router_is_saved_and_loaded_to_the_same_choices(tmp_path: Path) -> None:
    table = world(80, 3, effect=1.0)
    router = table.router(10.5)
    router.save(tmp_path / "router.safetensors")
    again = PlanRouter.load(tmp_path / "router.safetensors")
    assert (again.plans, again.prefix, again.penalty) == (PLANS, 2, router.penalty)
    assert (again.choices(table.features) == router.choices(table.features)).all()
    assert (again.weights == router.weights).all()
    assert (again.intercept == router.intercept).all()


def test_another_file_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="no router"):
        PlanRouter.load(tmp_path / "a.safetensors")
    tensors = {"weights": np.zeros((1, 1)), "intercept": np.zeros(1)}
    for header in ("[" * 9_999, "{}", '{"plans": ["0-"], "prefix": 1, "penalty": 0}', "[1]"):
        save_file(tensors, tmp_path / "a.safetensors", {"format": FORMAT, "router": header})
        with pytest.raises(DataError, match="no router"):
            PlanRouter.load(tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="layerwise search route writes one"):
        PlanRouter.load(tmp_path / "b.safetensors")
    (tmp_path / "c.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="no router"):
        PlanRouter.load(tmp_path / "c.safetensors")


def test_a_feature_that_never_varies_is_no_reason_to_fail() -> None:
    table = world(60, 4)
    features = np.concatenate([table.features, np.ones((60, 1))], axis=1)
    router = replace(table, features=features).router()
    assert np.isfinite(router.weights).all()
