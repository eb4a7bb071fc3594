"""`layerwise swarm simulate`: a swarm of up to a thousand nodes, with the times that were measured on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from layerwise.bounded import Unreadable, read_json
from layerwise.errors import DataError
from layerwise.experiments.experiment import Action
from layerwise.experiments.option import option
from layerwise.experiments.options.model import ModelOptions
from layerwise.experiments.reporter import Reporter
from layerwise.results.rows import Score
from layerwise.results.vocabulary import SIMULATION
from layerwise.swarm.rehearsal.simulation import Measured, World, by_size, nodes_of_one_router, uncovered

TIMES = ("hop", "layer", "router", "bytes")
"""What is measured, and may be given as JSON: seconds of a hop, of a layer and of the router, bytes of a hop."""


@dataclass(frozen=True, kw_only=True)
class Simulation(ModelOptions, Action):
    """Simulate a swarm past this machine: throughput and latency by the number of nodes, and what saturates first.

    Nodes come and go, some hops take long, whole racks are lost. What a layer takes, and what a hop costs the router's
    processor, is measured on a swarm of the model in this process, in about ten seconds, or read from --times.
    """

    VERB: ClassVar = "swarm simulate"
    EXAMPLES: ClassVar = ("demo", "demo --nodes 10,100,1000 --routers 8")

    nodes: tuple[int, ...] = option(
        (10, 30, 100, 300, 1000), "Numbers of nodes.", metavar="N,N,...", least=1, most=100_000
    )
    parts: int = option(4, "Spans that the layers are divided into.", metavar="N", least=1, most=1_000)
    routers: int = option(1, "Processes that route.", metavar="N", least=1, most=10_000)
    network_ms: float = option(2.0, "Milliseconds of a message there and back.", metavar="X", least=0)
    gigabits: float = option(10.0, "Bandwidth of the routers' link, in gigabits a second.", metavar="X")
    tail: float = option(2.5, "Shape of Pareto's tail of a message; smaller is heavier.", metavar="X", least=1)
    life: float = option(3600.0, "Seconds that a node lives, on the mean.", metavar="X", least=0)
    repair: float = option(60.0, "Seconds until it is back.", metavar="X", least=0)
    rack: int = option(20, "Nodes that are lost together.", metavar="N", least=1)
    rack_life: float = option(36_000.0, "Seconds that a rack lives, on the mean.", metavar="X", least=0)
    load: float = option(2.0, "Tokens under way for each node.", metavar="X", least=0)
    times: Path | None = option(None, "JSON with hop, layer, router (seconds) and bytes.", metavar="PATH")
    picture: Path | None = option(None, "HTML page to write the curves to.", metavar="PATH")
    seed: int = option(0, "Seed of every random draw.", metavar="N", least=0)

    def act(self, reporter: Reporter) -> int:
        """Measure, simulate, and print a row for each number of nodes."""
        stack = self.open_model(reporter)
        from layerwise.experiments.rehearsal.costs import measured_costs

        costs = read_times(self.times) if self.times is not None else measured_costs(stack)
        world = World(
            min(self.nodes), self.parts, max(1, round(stack.depth / self.parts)),
            routers=self.routers, bandwidth=self.gigabits * 1e9 / 8, tail=self.tail, life=self.life,
            repair=self.repair, rack_size=self.rack, rack_life=self.rack_life, load=self.load, seed=self.seed,
        )  # fmt: skip
        times = {"hop": self.network_ms / 1000, **costs}
        world = replace(
            world, hop=times["hop"], layer=times.get("layer", world.layer), router=times.get("router", world.router),
            bytes=times.get("bytes", world.bytes),
        )  # fmt: skip
        reporter.result(
            f"a layer takes {1e3 * world.layer:.3g} ms; a hop takes {1e3 * world.router:.3g} ms of the router's "
            f"processor, {world.bytes:,.0f} bytes, and {1e3 * world.hop:.3g} ms on the way"
        )
        measured = by_size(world, tuple(sorted(self.nodes)))
        reporter.result(table(measured))
        reporter.result(
            f"with {self.routers} router{'s' * (self.routers != 1)} the router bounds the throughput from "
            f"{nodes_of_one_router(world):,} nodes on; a router serves {world.service / world.router:.3g} nodes"
        )
        if self.picture is not None:
            from layerwise.report import ReportData, render, write

            manifest = {"model": self.model, "corpus": "simulated requests"}
            write(self.picture, render(ReportData(manifest, (), tuple(simulated_rows(measured)))))
            reporter.result(f"page: {self.picture}")
        return 0


def read_times(path: Path) -> dict[str, float]:
    """The measured times in a JSON file. Raises `DataError` for a file that has others, or no numbers above 0."""
    try:
        content = read_json(path)
        times = {name: float(content[name]) for name in content}
    except Unreadable as fault:
        raise DataError(f'{path} {fault}: write {{"layer": 0.001}}') from fault
    except (ValueError, TypeError) as error:
        raise DataError(f'{path} is no JSON object of numbers ({error}): write {{"layer": 0.001}}') from error
    wrong = [name for name, value in times.items() if name not in TIMES or not 0 < value < float("inf")]
    if wrong:
        raise DataError(f"{path} has {', '.join(wrong)[:80]}: give {', '.join(TIMES)}, each above 0")
    return times


def simulated_rows(measured: Sequence[Measured]) -> Iterator[Score]:
    """What each number of nodes (`amount`) carries, what each station could, and how busy it is."""
    for each in measured:
        limits = {f"{name} limit": limit for name, limit in each.world.limits().items()}
        busy = {f"{name} busy": share for name, share in each.busy.items()}
        for metric, value in {
            "throughput": each.throughput,
            "p50": each.p50,
            "p99": each.p99,
            **limits,
            **busy,
        }.items():
            yield Score.of(SIMULATION, metric, value, amount=each.world.nodes)


def table(measured: list[Measured]) -> str:
    """A row for each number of nodes."""
    head = ("nodes", "tokens/s", "p50 ms", "p99 ms", "layers missing", "retries", "router", "network", "nodes", "first")
    lines = ["  ".join(f"{name:>14}" for name in head)]
    for each in measured:
        cells = (
            f"{each.world.nodes:,}", f"{each.throughput:,.0f}", f"{1e3 * each.p50:.1f}", f"{1e3 * each.p99:.1f}",
            f"{uncovered(each.world):.2%}", f"{each.retries:.2%}",
            *(f"{share:.0%}" for share in each.busy.values()), each.world.saturates(),
        )  # fmt: skip
        lines.append("  ".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)
