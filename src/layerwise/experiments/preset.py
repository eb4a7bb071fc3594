"""Presets: the settings of a published experiment, by name, which what is given beside them replaces.

A configuration lists its presets in `PRESETS`. A preset is written out when the configuration is made, so that a run
stores the settings and not the name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from layerwise.errors import OptionError, near_matches

if TYPE_CHECKING:
    from layerwise.experiments.experiment import Configuration

PRESET = "preset"
"""What a preset is called beside the options: `--preset` on the command line, `preset` in Python and in YAML."""


def with_preset(kind: type[Configuration], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options `given` by name, completed by those of the preset that is named among them.

    What is given stands. A setting of the preset is left out where a given option says the same thing in another way
    (`ALTERNATIVES`), and where nothing would read it (`READS`). Raises `OptionError` for an unknown preset.

    >>> from layerwise.experiments.robustness.config import RobustTraining
    >>> given = {"methods": ("layershuffle",), "model": "demo-vit", "preset": "paper", "seeds": 2}
    >>> options = with_preset(RobustTraining, given)
    >>> options["seeds"], options["epochs"]
    (2, 20.0)
    """
    values = dict(given)
    name = values.pop(PRESET, None)
    if name is None:
        return values
    presets = getattr(kind, "PRESETS", {})
    if name not in presets:
        known = near_matches(str(name)[:40], presets) if presets else f"layerwise {kind.VERB} has none"
        raise OptionError(f"there is no preset {str(name)[:40]!r}; {known}")
    displaced = _displaced(kind, values)
    settings = {each: value for each, value in presets[name].items() if each not in displaced}
    unread = set(_unread(kind, {**settings, **values}))
    return {**{each: value for each, value in settings.items() if each not in unread}, **values}


def in_words(kind: type[Configuration], flag: Any) -> str:
    """The settings of every preset as they would be written; `flag` makes the flag of an option's name.

    >>> from functools import partial
    >>> from layerwise.experiments.merging.config import Merging
    >>> from layerwise.experiments.option import flag_of
    >>> in_words(Merging, partial(flag_of, Merging))
    'paper: --draws 100 --select-on reported'
    """
    return "; ".join(
        f"{name}: {' '.join(_written(flag(option), value) for option, value in settings.items())}"
        for name, settings in kind.PRESETS.items()
    )


def _written(flag: str, value: Any) -> str:
    if value is True:
        return flag
    if value is False:
        return flag.replace("--", "--no-", 1)
    values = value if isinstance(value, tuple) else (value,)
    return f"{flag} {','.join(f'{each:g}' if isinstance(each, float) else str(each) for each in values)}"


def _displaced(kind: type[Configuration], given: Mapping[str, Any]) -> set[str]:
    """The options that say what one of `given` says."""
    return {
        name
        for alternatives in kind.ALTERNATIVES
        if not given.keys().isdisjoint(alternatives.options)
        for name in alternatives.options
    }


def _unread(kind: type[Configuration], values: Mapping[str, Any]) -> Iterator[str]:
    """The options that a configuration of these values would not read; none where it could not be made."""
    if any(each.name not in values and each.default is MISSING for each in fields(kind)):
        return
    # The configuration is not made, since making it would refuse what is looked for here.
    unchecked = object.__new__(kind)
    for each in fields(kind):
        object.__setattr__(unchecked, each.name, values.get(each.name, each.default))
    for reads in kind.READS:
        if not reads.when(unchecked):
            yield from reads.options
