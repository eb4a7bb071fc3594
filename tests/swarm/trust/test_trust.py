"""Trust: wrong layers are found in a simulated swarm within 20 requests, and honest ones are never accused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from layerwise.errors import SwarmError
from layerwise.swarm.trust import (
    ENOUGH,
    ROUTER,
    STRIKES,
    Judgement,
    NormBounds,
    Norms,
    SpotCheck,
    Trust,
    judge,
    tolerance,
)
from tier import by_tier, first_fast

State = NDArray[np.float64]
WIDTH, DEPTH, SPAN, PASSES, REQUESTS, EPS = 32, 12, 3, 16, 20, 2.0**-23


class Layers:
    """A residual network of random layers, whose states grow with the depth as those of transformers do."""

    def __init__(self, chance: np.random.Generator) -> None:
        self.weights = chance.normal(0, 0.3 / np.sqrt(WIDTH), (DEPTH, 2, WIDTH, WIDTH))

    def run(self, layers: Sequence[int], state: State) -> State:
        for layer in layers:
            state = state + np.tanh(state @ self.weights[layer, 0]) @ self.weights[layer, 1]
        return state


Fault = Callable[[Layers, Sequence[int], State, np.random.Generator], State]


def noise(network: Layers, layers: Sequence[int], state: State, chance: np.random.Generator) -> State:
    return chance.normal(0, np.linalg.norm(state) / np.sqrt(state.size), state.shape)


def zeros(network: Layers, layers: Sequence[int], state: State, chance: np.random.Generator) -> State:
    return np.zeros_like(state)


def other_layers(network: Layers, layers: Sequence[int], state: State, chance: np.random.Generator) -> State:
    return network.run([(layer + SPAN) % DEPTH for layer in layers], state)


FAULTS: dict[str, Fault] = {"noise": noise, "zeros": zeros, "other layers": other_layers}


@dataclass
class Swarm:
    """Spans of layers on several replicas each, of which the node `bad` is faulty from a request on."""

    seed: int
    replicas: int
    fault: Fault | None = None
    since: int = 0
    router_has_layers: bool = False
    trust: Trust = field(default_factory=Trust)
    compared: int = 0
    bad: str = "1.0"

    def answer(self, node: str, layers: Sequence[int], state: State, request: int) -> State:
        if self.fault is not None and node == self.bad and request >= self.since:
            return self.fault(self.network, layers, state, self.chance)
        exact = self.network.run(layers, state)
        return exact * (1 + self.chance.normal(0, EPS, exact.shape))

    def norms(self, before: State, after: State) -> Norms:
        return Norms(*(float(np.linalg.norm(each)) for each in (before, after, after - before)))

    def compare(self, nodes: list[str], layers: Sequence[int], state: State, request: int, kind: object) -> None:
        """Request one answer more at a time until it is decided: the other nodes, the first again, the router."""
        answers = [self.answer(node, layers, state, request) for node in nodes[:1]]
        more = [*nodes[1:], nodes[0], *([ROUTER] if self.router_has_layers else [])]
        for count in range(2, len(more) + 2):
            answers.append(self.answer(more[count - 2], layers, state, request))
            gaps = [[float(np.linalg.norm(a - b) / np.linalg.norm(a + 1e-9)) for a in answers] for b in answers]
            names = [nodes[0], *more][:count]
            held = [self.trust.bounds.holds(kind, self.norms(state, each)) for each in answers]
            outside = {name for name, within in zip(names, held, strict=True) if within is False}
            verdict = judge(names, gaps, tolerance(WIDTH, SPAN, EPS), outside)
            self.trust.decide(verdict)
            if not verdict.undecided:
                return

    def run(self) -> None:
        self.chance = np.random.default_rng(self.seed)
        self.network = Layers(self.chance)
        for request in range(self.since + REQUESTS):
            for number in range(PASSES):
                state = self.chance.normal(0, 1, (1, WIDTH))
                for first in range(0, DEPTH, SPAN):
                    layers = range(first, first + SPAN)
                    names = [f"{first // SPAN}.{replica}" for replica in range(self.replicas)]
                    live = [node for node in names if node not in self.trust.quarantined]
                    live = live[request % len(live) :] + live[: request % len(live)]
                    state = self.hop(live, layers, state, request, number)

    def hop(self, live: list[str], layers: Sequence[int], state: State, request: int, number: int) -> State:
        after = self.answer(live[0], layers, state, request)
        kind = (layers, number == 0)
        norms = self.norms(state, after)
        why = self.trust.observe(live[0], kind, norms, begins=number == 0, alone=len(live) == 1)
        if why is not None and len(live) > 1:
            self.compared += 1
            self.compare(live, layers, state, request, kind)
        return after if np.linalg.norm(after) else state


CASES = [
    pytest.param(name, replicas, router, id=f"{name}, {replicas} replicas{', the router knows' * router}")
    for name in FAULTS
    for replicas, router in ((3, False), (2, True), (2, False))
    if (name, replicas, router) != ("other layers", 2, False)  # nobody can tell which of the two is wrong
]


@pytest.mark.parametrize("since", first_fast([25, 0]))
@pytest.mark.parametrize(("name", "replicas", "router"), CASES)
def test_a_faulty_node_is_quarantined_within_twenty_requests(
    name: str, replicas: int, router: bool, since: int
) -> None:
    for seed in range(by_tier(fast=1, full=1, nightly=5)):
        swarm = Swarm(seed, replicas, FAULTS[name], since, router)
        swarm.run()
        assert set(swarm.trust.quarantined) == {swarm.bad}


@pytest.mark.simulated
def test_an_honest_swarm_is_never_accused() -> None:
    compared = []
    for seed in range(by_tier(fast=2, full=16, nightly=100)):
        swarm = Swarm(seed, 2 + seed % 2)
        swarm.run()
        assert swarm.trust.quarantined == {}
        compared.append(swarm.compared / (REQUESTS * PASSES * DEPTH / SPAN))
    assert 0.01 <= np.mean(compared) <= 0.1, "1 % of the hops, and the first ones of few requests"


def test_a_node_without_replicas_is_quarantined_by_its_norms_alone() -> None:
    for name in ("noise", "zeros"):
        swarm = Swarm(0, 1, FAULTS[name], since=5)
        swarm.trust.spot_check = SpotCheck(first=0)
        with pytest.raises(ZeroDivisionError):  # the simulation has no other node to go on with
            swarm.run()
        assert set(swarm.trust.quarantined) == {swarm.bad}
        assert swarm.trust.quarantined[swarm.bad] == (
            f"{STRIKES} answers in a row changed the norm of the state as none before"
        )


@settings(max_examples=by_tier(fast=3, full=8, nightly=200))
@given(st.sampled_from([0.01, 0.03, 0.2, 0.34, 0.6, 0.99, 1.0]), st.integers(0, 99), st.text(max_size=3))
def test_spot_checks_are_at_least_their_share_and_always_the_same(share: float, seed: int, node: str) -> None:
    check = SpotCheck(share, seed)
    chosen = [hop for hop in range(400) if check.compares(node, hop)]
    assert chosen[:3] == [0, 1, 2]
    assert 400 * share - 1 <= len(chosen) <= 400 * share + 4  # the first three are added, and a run may be cut off
    assert chosen == [hop for hop in range(400) if SpotCheck(share, seed).compares(node, hop)]
    assert max(np.diff(chosen)) < 2 / share + 1
    assert all(check.compares(node, 300 + number, number) for number in range(7, 100, 8))


def gaps(values: Sequence[float]) -> list[list[float]]:
    return [[abs(a - b) for a in values] for b in values]


@pytest.mark.parametrize(
    ("nodes", "values", "outside", "right", "wrong", "undecided"),
    [
        ("ab", [1, 1], "", "ab", "", ""),
        ("ab", [1, 2], "", "", "", "ab"),
        ("ab", [1, 2], "a", "b", "a", ""),
        ("ab", [1, 2], "ab", "", "", "ab"),
        ("abc", [1, 2, 1], "", "ac", "b", ""),
        ("abc", [1, 2, 1], "ac", "ac", "b", ""),
        ("abc", [1, 2, 3], "", "", "", "abc"),
        ("abcd", [1, 2, 1, 2], "", "", "", "abcd"),
        ("aba", [1, 2, 3], "", "", "a", ""),
        ("aba", [1, 2, 1], "", "", "", "ab"),
        ("aa", [1, 1], "", "", "", ""),
        ("abca", [1, 2, 2, 3], "", "bc", "a", ""),
    ],
)
def test_who_is_right(nodes: str, values: list[float], outside: str, right: str, wrong: str, undecided: str) -> None:
    verdict = judge([*nodes], gaps(values), 0.1, outside)
    assert verdict == Judgement(frozenset(right), frozenset(wrong), frozenset(undecided))


def test_the_routers_own_layers_decide() -> None:
    assert judge(["a", "b", ROUTER], gaps([1, 2, 2]), 0.1) == Judgement(frozenset("b"), frozenset("a"))
    assert judge(["a", "b", ROUTER], gaps([1, 1, 2]), 0.1) == Judgement(frozenset(), frozenset("ab"))


def test_bounds_are_unknown_at_first_and_never_hold_for_what_is_no_number() -> None:
    bounds, honest = NormBounds(), Norms(1.0, 1.2, 0.5)
    for _ in range(ENOUGH):
        assert bounds.holds("kind", honest) is None
        bounds.learn("kind", honest)
    assert bounds.holds("kind", honest)
    assert bounds.holds("another", honest) is None
    for wrong in (Norms(1.0, 0.0, 1.0), Norms(1.0, 3.0, 0.5), Norms(1.0, 1.0, 0.0)):
        assert bounds.holds("kind", wrong) is False
    assert bounds.holds("another", Norms(1.0, float("nan"), 1.0)) is False


def test_who_was_proved_wrong_is_named_once() -> None:
    trust = Trust()
    assert trust.decide(Judgement(frozenset("b"), frozenset("a")), "layers 3-5") == ("a",)
    assert trust.quarantined == {"a": "its answer to layers 3-5 contradicts that of b"}
    assert trust.decide(Judgement(frozenset("b"), frozenset("a"))) == ()


def test_rounding_is_tolerated_and_little_else() -> None:
    assert tolerance(4096, 3, EPS) < 1e-3
    assert tolerance(4096, 3, 2.0**-7) == 0.05


def test_a_spot_check_of_nothing_is_refused() -> None:
    with pytest.raises(SwarmError, match="a share from 0 to 1 of the hops"):
        SpotCheck(0.0)
