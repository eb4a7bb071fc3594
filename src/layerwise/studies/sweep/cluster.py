"""A sweep on Ray: every process opens the sweep from the same options, and computes plans batch by batch.

A process with other weights, text, CPU or threads is refused. All compute with one thread, so the rows have the bits of
a single process with one thread, which may resume the run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import layerwise.models  # noqa: F401  (its architectures become known to transformers)
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.errors import RunError, SwarmError
from layerwise.measure.interventions.sweep_pieces import Plain
from layerwise.results import Manifest
from layerwise.results.identity import HARDWARE, check_same_run
from layerwise.runner.experiment import Inputs
from layerwise.runner.opening import quiet_transformers
from layerwise.runner.option import plain
from layerwise.runner.reporter import Reporter
from layerwise.stack import Stack, load
from layerwise.stack.load import tensor_hash
from layerwise.studies.sweep.options import Sweep
from layerwise.swarm.cluster.connection import check_address, require_ray
from layerwise.swarm.cluster.tasks import RayTasks, available_processors

if TYPE_CHECKING:
    from layerwise.studies.sweep.steps import SweepUnit

OPENS = "layerwise.studies.sweep.steps:open_piece_function"

_OPTIONS = ("ray", "workers", "run", "overwrite")


class SweepTasks:
    """The Ray tasks of a sweep; the cluster is looked for, or started, when they are first needed."""

    def __init__(self, unit: SweepUnit, inputs: Inputs, reporter: Reporter) -> None:
        self.unit = unit
        self.inputs = inputs
        self.reporter = reporter
        self._tasks: RayTasks | None = None
        self._shared: dict[str, Plain] = {}

    @property
    def count(self) -> int:
        return self._started().count

    def map(self, pieces: Sequence[Plain]) -> Iterator[tuple[int, Plain]]:
        return self._started().map(OPENS, self._shared, pieces)

    def close(self) -> None:
        if self._tasks is not None:
            self._tasks.close()
            self._tasks = None

    def _started(self) -> RayTasks:
        if self._tasks is None:
            config = self.unit.config
            assert config.ray is not None, "without an address there is no cluster"
            where = "on this machine" if config.ray == "local" else f"at {config.ray}"
            self.reporter.log(f"computing on Ray {where}")
            self._shared = shared_by(self.unit, self.inputs)
            accelerators = self.unit.manifest.device == "cuda"
            self._tasks = RayTasks(config.ray, config.workers, accelerators=accelerators)
        return self._tasks


@contextmanager
def one_thread(config: Sweep, inputs: Inputs) -> Iterator[None]:
    """Compute with one thread within the context if there are workers.

    Raises `SwarmError` without Ray, for an invalid address, and for a model that cannot be sent.
    """
    if config.ray is None:
        yield
        return
    check_address(config.ray)
    require_ray()
    if inputs.stack is not None and not hasattr(inputs.stack.model, "save_pretrained"):
        raise SwarmError(
            f"{inputs.stack.source.name} was opened in Python and is not a model of transformers, so no other process "
            "can open it. Leave ray out to compute in this process"
        )
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def planned_workers(config: Sweep) -> int | None:
    """How many pieces will be computed at a time, without asking a cluster; `None` where only it knows."""
    return config.workers or (available_processors() if config.ray == "local" else None)


def shared_by(unit: SweepUnit, inputs: Inputs) -> dict[str, Plain]:
    config = unit.config
    options = {name: value for name, value in plain(config).items() if name not in _OPTIONS}
    options["batch_tokens"] = unit.batch_tokens
    if config.text is not None and config.tokens is None:
        options["tokens"] = "all"
    return {
        "options": options,
        "manifest": unit.manifest.to_json(),
        "model": None if inputs.stack is None else _files_of(inputs.stack),
        "corpus": None if inputs.corpus is None else _plain_corpus(inputs.corpus),
    }


def opened_inputs(shared: Mapping[str, Plain], config: Sweep) -> Inputs:
    return Inputs(_opened(shared["model"], config), _corpus(shared["corpus"]))


def check_same_sweep(shared: Mapping[str, Plain], stack: Stack | None, here: Manifest) -> None:
    """Raise `RunError` where a task opened another sweep than the run is of; `stack` is a model that was sent."""
    wanted = Manifest.from_json(shared["manifest"])
    if stack is not None:
        # What is opened here was written and read, which completes a configuration: the tensors are compared instead.
        same = tensor_hash(stack.model) == shared["model"]["tensors"]
        here = replace(here, weight_hash=wanted.weight_hash if same else here.weight_hash)
    check_same_here(wanted, here)


def check_same_here(wanted: Manifest, here: Manifest) -> None:
    """Raise `RunError` if a worker opened something else than the run or would compute other bits.

    The model's name is not compared, since a model opened in Python has another one; its weights are.
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
    model: Any = stack.model
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


def _opened(described: Plain, config: Sweep) -> Stack | None:
    if described is None:
        return None
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
    return Corpus(described["name"], tuple(Document(**document) for document in described["documents"]))
