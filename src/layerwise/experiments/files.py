"""Experiments in files: a mapping from the names of options to their values, in YAML or in the manifest of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerwise.bounded import Unreadable, decoded, read_bytes
from layerwise.errors import OptionError
from layerwise.experiments.catalogue import experiment
from layerwise.experiments.experiment import Experiment
from layerwise.experiments.option import configured, plain
from layerwise.results import Run

VERB = "experiment"
"""The key of the verb."""


def read_experiment(path: Path) -> Experiment:
    """The experiment in a YAML file, or that of a run folder, which is then resumed.

    Raises `OptionError` for a file that cannot be read, for an unknown verb, and for options that the experiment does
    not have.
    """
    if path.is_dir():
        with Run.open(path) as run:
            content = run.manifest.experiment
        if not content:
            raise OptionError(f"{path} was not made by an experiment that can be run again")
        return replace(experiment_of(content, str(path)), run=path)
    from layerwise.data.plain_yaml import SIZE, parse_yaml  # help does not wait for it

    try:
        content = parse_yaml(decoded(read_bytes(path, SIZE)))
    except Unreadable as error:
        raise OptionError(f"{path} {error}") from error
    return experiment_of(content, str(path))


def experiment_of(content: object, where: str) -> Experiment:
    """The experiment of plain values; `where` is named in refusals."""
    if not isinstance(content, Mapping) or not isinstance(content.get(VERB), str):
        raise OptionError(f"{where} names no experiment: write `{VERB}: sweep` (or another verb) and its options")
    kind = experiment(content[VERB])
    config = configured(kind, {name: value for name, value in content.items() if name != VERB}, where)
    assert isinstance(config, Experiment)
    return config


def to_yaml(config: Experiment) -> str:
    """The experiment as YAML: its verb, and the options that differ from their defaults.

    >>> from layerwise.experiments.sweep.config import Sweep
    >>> print(to_yaml(Sweep(model="demo", families=("painters",))), end="")
    experiment: sweep
    model: demo
    families:
    - painters
    """
    import yaml

    content: dict[str, Any] = {VERB: config.VERB, **plain(config)}
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
