"""The cluster of an experiment: workers that are started when the first piece is handed out, and not before.

Every worker opens the experiment from the same options as this process did, and is refused where it has other weights,
another text, another kind of processor or other threads: its rows would not be those of the run. It computes with one
thread, as this process then does too. So the rows have the bits that one process with one thread gives on such a
machine, and that process may resume the run. Pieces report as they go: here as ever, in a worker through its driver.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from layerwise.errors import RunError, SwarmError
from layerwise.experiments.engines.steps import Outline
from layerwise.experiments.experiment import Experiment, Inputs
from layerwise.experiments.option import configured, plain
from layerwise.experiments.options.common import ClusterOptions
from layerwise.experiments.reporter import Reporter, Silent
from layerwise.measure.workers import Emit, OnPartial, PieceFunction, Plain, Spread
from layerwise.results import Manifest
from layerwise.results.identity import HARDWARE, check_same_run

if TYPE_CHECKING:
    from layerwise.swarm.cluster.workers import RayWorkers
if TYPE_CHECKING:
    from layerwise.data.text.corpus import Corpus
    from layerwise.stack import Stack

EVERY = 0.5
"""Seconds between two words of a worker on how far its piece is."""

Work = Callable[[Plain, Reporter], None]
"""Carries a piece out, and says so to a reporter; what it finds out it writes into the run folder."""


class Telling:
    """The reporter of a worker: what it is told goes to the process that handed out the piece."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._last = -EVERY

    def log(self, text: str) -> None:
        """Pass a sentence on."""
        self._emit(("log", text))

    def progress(self, label: str, share: float, seconds_left: float | None = None) -> None:
        """Pass a share on, now and then: what draws it is far away."""
        now = time.monotonic()
        if now - self._last >= EVERY:
            self._last = now
            self._emit(("progress", label, share))

    def result(self, text: str | Text) -> None:
        """Results are made where the rows are."""


def carried_out(
    spread: Spread, pieces: Sequence[Plain], work: Work, reporter: Reporter, what: str = "trainings"
) -> Iterator[int]:
    """The numbers of the pieces, as they are done; in this process each reports by itself, elsewhere all together.

    `what` they are called together.
    """
    shares = [0.0] * len(pieces)

    def on_partial(number: int, news: Plain) -> None:
        if news[0] == "log":
            reporter.log(news[1])
            return
        shares[number] = min(1.0, news[2])
        reporter.progress(f"{what}: {news[1]}", sum(shares) / len(shares))

    def here(piece: Plain, emit: Emit) -> None:
        work(piece, reporter)

    for number, _ in spread.map(pieces, here, on_partial=on_partial):
        shares[number] = 1.0
        yield number


def refuse_unseen(what: str, spread: Spread, is_there: bool) -> None:
    """Raise `RunError` where a worker wrote what this process does not see."""
    if not is_there and not spread.is_here:
        raise RunError(
            f"{what} was finished by a worker, and is not in the run folder of this machine; put the run folder on a "
            "disk that every machine of the cluster sees (--run FOLDER)"
        )


OPENS = f"{__name__}:open_experiment"
"""What a worker calls."""

_OPTIONS = ("ray", "workers", "run", "overwrite")
"""The options that a worker is not told: it writes no run."""


def shared_by(config: Experiment, outline: Outline, inputs: Inputs) -> dict[str, Plain]:
    """What a worker opens the experiment from: its options, what they came to, and what was opened in Python.

    Raises `SwarmError` for an opened model that cannot be written as files.
    """
    options = {name: value for name, value in plain(config).items() if name not in _OPTIONS}
    return {
        "verb": config.VERB,
        "options": options,
        "manifest": outline.manifest.to_json(),
        "model": None if inputs.stack is None else _files_of(inputs.stack),
        "corpus": None if inputs.corpus is None else _plain_corpus(inputs.corpus),
    }


def open_experiment(shared: Mapping[str, Plain]) -> PieceFunction:
    """In a worker: open the experiment that `shared_by` describes; returns what carries out a piece of it.

    Raises what opening it raises, and `RunError` where it is not the same here.
    """
    from layerwise.experiments.catalogue import experiment
    from layerwise.stack.load import tensor_hash

    config = configured(experiment(shared["verb"]), shared["options"], "a worker")
    inputs = Inputs(_opened(shared["model"], config), _corpus(shared["corpus"]))
    outline = next(config.begin(Silent(), inputs))
    assert isinstance(outline, Outline), "the outline comes first"
    wanted, here = Manifest.from_json(shared["manifest"]), outline.manifest
    if inputs.stack is not None:
        # What is opened here was written and read, which completes a configuration: the tensors are compared instead.
        same = tensor_hash(inputs.stack.model) == shared["model"]["tensors"]
        here = replace(here, weight_hash=wanted.weight_hash if same else here.weight_hash)
    check_same_here(wanted, here)
    assert outline.pieces is not None, f"{config.VERB} hands out no pieces"
    return outline.pieces


def check_same_here(wanted: Manifest, here: Manifest) -> None:
    """Raise `RunError` where a worker opened another thing than the run is of, or would compute other bits.

    The name of a model is not compared: one that was opened in Python has another one here. Its weights are.
    """
    try:
        check_same_run(wanted, replace(here, model=wanted.model, revision=wanted.revision))
    except RunError as error:
        raise RunError(
            f"a worker does not have what the run is of: {str(error).partition(': ')[2].partition('. ')[0]}. Give "
            "every machine of the cluster the same model, text and versions"
        ) from error
    for name in HARDWARE:
        there, own = wanted.hardware.get(name), here.hardware.get(name)
        if there != own:
            raise RunError(
                f"a worker computes on another kind of machine than the one that started the run ({name}: {own}, not "
                f"{there}), so its rows would differ in their last bits; use machines of one kind"
            )


def _files_of(stack: Stack) -> dict[str, Plain]:
    """An opened model as the files of a checkpoint, by name; its layers, and its tokenizer among the files."""
    from layerwise.experiments.opening import quiet_transformers
    from layerwise.stack.load import tensor_hash

    model: Any = stack.model
    if not hasattr(model, "save_pretrained"):
        raise SwarmError(
            f"{stack.source.name} was opened in Python and is no model of transformers, so no worker can open it; "
            "leave ray out to compute in this process"
        )
    with tempfile.TemporaryDirectory(prefix="layerwise-") as name:
        folder = Path(name)
        quiet_transformers()
        model.save_pretrained(folder)
        if stack.tokenizer is not None:
            stack.tokenizer.save_pretrained(folder)
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    return {
        "files": files,
        "name": stack.source.name,
        "layers": stack.path,
        "tokenizer": stack.tokenizer is not None,
        "tensors": tensor_hash(model),
    }


def _opened(described: Plain, config: Any) -> Stack | None:
    """The model that `_files_of` described, opened here."""
    if described is None:
        return None
    import layerwise.models  # noqa: F401  (its architectures become known to transformers)
    from layerwise.experiments.opening import quiet_transformers
    from layerwise.stack import load

    quiet_transformers()
    with tempfile.TemporaryDirectory(prefix="layerwise-") as name:
        for file, content in described["files"].items():
            (Path(name) / Path(file).name).write_bytes(content)
        stack = load(name, layers=described["layers"], device=config.device)
    if not described["tokenizer"]:
        stack.tokenizer = None
    stack.source = replace(stack.source, name=described["name"])
    return stack


def _plain_corpus(corpus: Corpus) -> dict[str, Plain]:
    return {"name": corpus.name, "documents": [asdict(document) for document in corpus.documents]}


def _corpus(described: Plain) -> Corpus | None:
    if described is None:
        return None
    from layerwise.data.text.corpus import Corpus
    from layerwise.data.text.documents import Document

    return Corpus(described["name"], tuple(Document(**document) for document in described["documents"]))


THREADS = 1
"""Threads of torch, here as in every worker: a sum that is divided among threads has other last bits."""


@dataclass
class Cluster:
    """Workers on the Ray cluster that the options name; they are started when they are first needed."""

    config: ClusterOptions
    reporter: Reporter
    accelerators: bool = False
    _workers: RayWorkers | None = field(default=None, init=False)

    @property
    def count(self) -> int:
        """How many pieces are carried out at the same time."""
        return self._started().count

    def map(
        self,
        opens: str,
        shared: Mapping[str, Plain],
        pieces: Sequence[Plain],
        *,
        here: PieceFunction,
        on_partial: OnPartial | None = None,
        rest: Callable[[Plain], Plain] | None = None,
    ) -> Iterator[tuple[int, Plain]]:
        """The number and the result of every piece, as they are done; see `Workers.map`."""
        return self._started().map(opens, shared, pieces, here=here, on_partial=on_partial, rest=rest)

    def close(self) -> None:
        """End the workers, and the cluster that was started here."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def _started(self) -> RayWorkers:
        if self._workers is None:
            from layerwise.swarm.cluster.workers import RayWorkers

            assert self.config.ray is not None, "without an address there is no cluster"
            where = "on this machine" if self.config.ray == "local" else f"at {self.config.ray}"
            self.reporter.log(f"starting workers on Ray {where}")
            self._workers = RayWorkers(
                self.config.ray, self.config.workers, accelerators=self.accelerators, log=self.reporter.log
            )
            count = self._workers.count
            self.reporter.log(f"{count} worker{'s' * (count != 1)}, each with {THREADS} thread")
        return self._workers


def is_spread(config: Experiment) -> bool:
    """Whether an experiment is to be computed on a cluster."""
    return isinstance(config, ClusterOptions) and config.ray is not None


@contextmanager
def as_workers_compute(config: Experiment) -> Iterator[None]:
    """Compute here as the workers of the experiment do, with one thread; nothing is changed where it has none.

    Raises `SwarmError` where Ray is not installed, for an address of another form, and under torchrun.
    """
    if not is_spread(config):
        yield
        return
    assert isinstance(config, ClusterOptions)
    assert config.ray is not None
    from layerwise.swarm.cluster.connection import check_address, require_ray

    check_address(config.ray)
    require_ray()
    import torch

    from layerwise.train.processes import is_alone

    if not is_alone():
        raise SwarmError("--ray hands the work out to processes of its own; start the command without torchrun")
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def spread_over(config: Experiment, outline: Outline, inputs: Inputs, reporter: Reporter) -> Iterator[Spread]:
    """The workers that the options of an experiment name, which are ended in every case; else this process."""
    if not is_spread(config):
        yield Spread()
        return
    assert isinstance(config, ClusterOptions)
    cluster = Cluster(config, reporter, accelerators=outline.manifest.device == "cuda")
    try:
        yield Spread(cluster, OPENS, shared_by(config, outline, inputs))
    finally:
        cluster.close()


def planned_workers(config: ClusterOptions) -> int | None:
    """How many workers there will be, without asking a cluster; `None` where only it knows."""
    from layerwise.swarm.cluster.workers import available_processors

    return config.workers or (available_processors() if config.ray == "local" else None)
