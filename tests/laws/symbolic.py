"""Run plans on symbols, over the tree and over the steps: equal computations get equal numbers."""

from collections.abc import Iterable

from layerwise.plan import Block, Group, Plan, Reduction, Step, Visit

INPUT = 0


class Computations:
    def __init__(self) -> None:
        self.numbers: dict[tuple[object, ...], int] = {("input",): INPUT}
        self.chains = {INPUT: 0}

    def apply(self, visited: Visit | Step, state: int) -> int:
        return self._number(("apply", visited.source, visited.layer, visited.sublayer, state), 1 + self.chains[state])

    def merge(self, rule: Reduction, base: int, outputs: Iterable[int]) -> int:
        ends = tuple(outputs)
        return self._number(("merge", rule, base, ends), max(self.chains[end] for end in ends))

    def applications(self) -> int:
        return sum(key[0] == "apply" for key in self.numbers)

    def _number(self, key: tuple[object, ...], chain: int) -> int:
        number = self.numbers.setdefault(key, len(self.numbers))
        self.chains[number] = chain
        return number


def run_tree(plan: Plan, state: int, seen: Computations) -> int:
    for stage in plan.stages:
        for _ in range(stage.times):
            match stage:
                case Visit():
                    state = seen.apply(stage, state)
                case Block():
                    state = run_tree(stage.plan, state, seen)
                case Group():
                    ends = [run_tree(branch, state, seen) for branch in stage.branches]
                    state = seen.merge(stage.merge, state, ends)
    return state


def run_steps(steps: Iterable[Step], state: int, seen: Computations) -> int:
    frames: list[tuple[int, list[int]]] = []
    for step in steps:
        frames += [(state, []) for _ in range(step.opens)]
        state = seen.apply(step, state)
        for close in step.closes:
            base, outputs = frames[-1]
            outputs.append(state)
            state = base if close is None else seen.merge(close, base, outputs)
            if close is not None:
                frames.pop()
    assert not frames, "a group opened and never closed"
    return state


def distinct_evaluations(plans: Iterable[Plan]) -> int:
    seen = Computations()
    for plan in plans:
        run_steps(plan.steps(), INPUT, seen)
    return seen.applications()
