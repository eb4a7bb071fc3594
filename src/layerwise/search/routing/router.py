"""The router: linear scores of plans from the state of a prompt, and the plan of the greatest score less its price.

    choice(x) = argmax over plans p of  (x . weights[:, p] + intercept[p]) - penalty * layers[p]

The weights are ridge regressions of every plan's score on standardised features (Hoerl and Kennard 1970). Scores are
taken as differences to the question's mean over plans: what makes a prompt hard for all plans alike says nothing about
which to choose. The strength of the ridge is the one that predicts best when each question is left out; those
predictions also set the penalty, so that mean layers meet a limit on questions that the weights have not seen.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from scipy.linalg import LinAlgWarning
from sklearn.linear_model import RidgeCV

from layerwise.bounded import parse_json
from layerwise.errors import DataError, PlanError
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.results.run import write_whole

STRENGTHS = np.logspace(0, 6, 7)
"""Ridge penalties that are tried, for features of unit variance: up to those that leave little but the mean."""

FORMAT = "layerwise-router-1"


@dataclass(frozen=True, eq=False)
class PlanRouter:
    """A fitted router. `plans` begin with the layers 0 to `prefix` - 1 and stand in the order of their cost.

    `weights` are (features, plans), `intercept` (plans,), `penalty` is in units of the score for each layer.
    """

    plans: tuple[Plan, ...]
    prefix: int
    weights: Numbers
    intercept: Numbers
    penalty: float = 0.0

    @cached_property
    def layers(self) -> Numbers:
        """The layer evaluations of every plan, (plans,)."""
        return layers_of(self.plans)

    def scores(self, features: Numbers) -> Numbers:
        """The predicted scores (questions, plans) of features (questions, features)."""
        return np.asarray(features @ self.weights + self.intercept)

    def choices(self, features: Numbers) -> Numbers:
        """The number of the chosen plan for each row of features: (questions,), of equals the cheapest."""
        return chosen(self.scores(features), self.layers, self.penalty)

    def save(self, path: Path | str) -> None:
        """Write the router as one safetensors file, the plans in its header."""
        header = {"plans": list(map(str, self.plans)), "prefix": self.prefix, "penalty": self.penalty}
        tensors = {"weights": self.weights, "intercept": self.intercept}
        write_whole(Path(path), save(tensors, metadata={"format": FORMAT, "router": json.dumps(header)}))

    @classmethod
    def load(cls, path: Path | str) -> PlanRouter:
        """Read a router that `save` wrote. Raises `DataError` for any other file."""
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise SafetensorError("of another kind")
                tensors = {name: file.get_tensor(name) for name in ("weights", "intercept")}
            header = parse_json(metadata["router"])
            plans = tuple(map(Plan.parse, header["plans"]))
            return cls(plans, int(header["prefix"]), **tensors, penalty=float(header["penalty"]))
        except (SafetensorError, PlanError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path} is no router of layerwise ({error}); give the router.safetensors of a run of route"
            ) from error
        except OSError as error:
            raise DataError(f"there is no router at {path} ({error}); layerwise search route writes one") from error


@dataclass(frozen=True, slots=True, eq=False)
class RouterFit:
    """A router without a penalty, and its predictions for every question from all others: (questions, plans)."""

    router: PlanRouter
    left_out: Numbers

    def within(self, limit: float) -> PlanRouter:
        """The router with the least penalty whose mean layers, on questions left out, are `limit` at most."""
        return replace(self.router, penalty=penalty_for(self.left_out, self.router.layers, limit))


def fit_router(features: Numbers, scores: Numbers, plans: tuple[Plan, ...], prefix: int) -> RouterFit:
    """Fit a router to features (questions, features) and the plans' scores (questions, plans), more being better."""
    centre, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    ridge = RidgeCV(STRENGTHS, scoring="neg_mean_squared_error", store_cv_results=True)
    targets = scores - scores.mean(axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)  # features may repeat one another, and the ridge is for that
        ridge.fit((features - centre) / scale, targets)
    left_out = ridge.cv_results_[:, :, int(np.argmin(np.abs(STRENGTHS - ridge.alpha_)))]
    weights = ridge.coef_.T / scale[:, None]
    return RouterFit(PlanRouter(plans, prefix, weights, ridge.intercept_ - centre @ weights), left_out)


def layers_of(plans: tuple[Plan, ...]) -> Numbers:
    """The layer evaluations of plans, (plans,)."""
    return np.array([plan.cost().evaluations for plan in plans], dtype=np.float64)


def chosen(scores: Numbers, layers: Numbers, penalty: float) -> Numbers:
    """The plan with the greatest score less its price, for every row of scores (questions, plans)."""
    return np.asarray((scores - penalty * layers).argmax(axis=1))


def penalty_for(scores: Numbers, layers: Numbers, limit: float) -> float:
    """The least price of a layer at which the chosen plans have `limit` mean layers at most; found by bisection.

    Where even the cheapest plan has more, the price at which it is always chosen.
    """

    def mean_layers(penalty: float) -> float:
        return float(layers[chosen(scores, layers, penalty)].mean())

    if mean_layers(0.0) <= limit:
        return 0.0
    gaps = np.diff(np.unique(layers))
    low, high = 0.0, 2.0 * float(np.ptp(scores, axis=1).max()) / float(gaps.min()) + 1e-9
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if mean_layers(middle) <= limit else (middle, high)
    return high
