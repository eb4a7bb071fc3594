"""A verb as it was asked for: what every option must be, and that something reads those that were given.

An option that is not read is refused: whoever wrote it believes that it does something. Which options are read when is
a table (`layerwise.cli.reads`); here it is looked at, before the verb runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from layerwise.bounded import named
from layerwise.cli.reads import READS
from layerwise.errors import OptionError

LARGEST = 2**53
"""The largest whole number that an option takes: floats count no further."""

MAY_BE_EMPTY = frozenset({"--families", "--plan", "--set", "PLAN"})
"""Options that say something by being empty, no family where plans of one's own are given, or that say themselves what
is wrong with it."""


PLACES = frozenset({"model", "models", "tokenizer", "images"})
"""Parameters that may be paths, and are texts because they may be the names of something on the hub too."""


class Asked(TyperCommand):
    """A command whose options are checked before it runs."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the words of the command. Raises `OptionError` for an option whose text is empty: a path that is
        nothing would be the folder that one is in."""
        for before, word in itertools.pairwise(["", *args]):
            flag, equals, text = word.partition("=")
            if (word == "" and before.startswith("--") and before != "--") or (
                flag.startswith("--") and equals and not text
            ):
                named = flag or before
                if named not in MAY_BE_EMPTY:
                    raise OptionError(f"{named} was given an empty text; write what it is about, or leave it out")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises `OptionError` for options that nothing reads and values that nothing takes."""
        flags = {param.name: _flag(param) for param in self.params if param.name is not None}
        for name in _given(ctx):
            value = ctx.params[name]
            for each in value if isinstance(value, list | tuple) else (value,):
                check_value(flags[name], each)
                if isinstance(each, Path) or (name in PLACES and isinstance(each, str)):
                    check_place(flags[name], each)
        check_read(getattr(self.callback, "__name__", ""), ctx, flags)
        return super().invoke(ctx)


def check_value(flag: str, value: object) -> None:
    """Raise `OptionError` for an empty text, and for a number that is not finite or too large to count with."""
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"{flag} takes a finite number, and {value} was given")
    if isinstance(value, int | float) and abs(value) > LARGEST:
        raise OptionError(f"{flag} takes a number up to {LARGEST:,}, and a larger one was given")
    if value == "" and flag not in MAY_BE_EMPTY:
        raise OptionError(f"{flag} was given an empty text; write what it is about")


def check_place(flag: str, place: str | Path) -> None:
    """Raise `OptionError` for a path that the system cannot look up, wherever it leads."""
    try:
        Path(place).expanduser().exists()
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OptionError(
            f"{flag} was given {named(str(place))}, which cannot be looked up ({reason}); write another path"
        ) from error


def check_read(verb: str, ctx: Any, flags: dict[str, str]) -> None:
    """Raise `OptionError` for an option that was given and that what was asked for does not read."""
    given = frozenset(_given(ctx))
    for reads in READS.get(verb, ()):
        unread = [name for name in reads.options if name in given]
        if unread and not reads.when(ctx.params, given):
            listed = " and ".join(flags[name] for name in unread)
            does, it = ("do", "them") if len(unread) > 1 else ("does", "it")
            raise OptionError(f"{listed} {does} nothing here: {reads.by}; leave {it} out")


def _given(ctx: Any) -> Iterator[str]:
    """The names of the parameters that were written on the command line."""
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            yield name


def _flag(param: Any) -> str:
    """How a parameter is written: its flag, or for an argument its name in the usage."""
    long = [text for text in param.opts if text.startswith("--")]
    return long[0] if long else str(param.metavar or param.name).upper()
