"""How a configuration and what is said of it is written: as a command, with its flags, or with the names of Python."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from layerwise.errors import LayerwiseError
from layerwise.runner.option import choices_of, flag_of, given_flag, options_of, plain


def as_command(config: Any) -> str:
    """The command of a configuration, as a person would type it."""
    arguments, flags = [], []
    for name, value in plain(config).items():
        each, flag = options_of(config)[name][1], given_flag(config, name)
        texts = [str(part) for part in (value if isinstance(value, list) else [value])]
        if each.positional:
            arguments += texts if each.repeated else [",".join(texts)]
        elif each.setting:
            flags += f"{flag}={','.join(texts)}".split(" ", 1)  # `--set` is a word of its own
        elif isinstance(value, bool):
            flags += [flag]
        else:
            flags += [word for text in (texts if each.repeated else [",".join(texts)]) for word in (flag, text)]
    return " ".join(["layerwise", config.VERB, *map(shlex.quote, arguments), *map(shlex.quote, flags)])


def in_python(kind: type, text: str) -> str:
    """A text about a configuration with the names of Python in place of its flags."""

    def written(name: str, value: str | None) -> str:
        return name if value is None else f"{name}={value if value.isdigit() or value == 'False' else repr(value)}"

    return _respelt(kind, text, written)


def in_flags(kind: type, text: str) -> str:
    def written(name: str, value: str | None) -> str:
        if value == "False" and not options_of(kind)[name][1].setting:
            return f"--no-{name.replace('_', '-')}"
        joined = "=" if options_of(kind)[name][1].setting else " "
        return flag_of(kind, name) + ("" if value is None else f"{joined}{value}")

    return _respelt(kind, text, written)


@contextmanager
def refusals(kind: type, spelt: Callable[[type, str], str]) -> Iterator[None]:
    try:
        yield
    except LayerwiseError as refusal:
        refusal.args = (spelt(kind, str(refusal)),)
        raise


def _respelt(kind: type, text: str, written: Callable[[str, str | None], str]) -> str:
    options = options_of(kind)
    names = {each.flag: name for name, (_, each) in options.items() if each.flag}

    def respelt(match: re.Match[str]) -> str:
        if match["command"]:
            return match.group()
        flag, value = match["flag"], match["value"] or ""
        name = names.get(flag, flag.removeprefix("--").removeprefix("set ").replace("-", "_"))
        if name.startswith("no_") and name not in options and name.removeprefix("no_") in options:
            return written(name.removeprefix("no_"), "False") + value
        if name not in options:
            return match.group()
        if value.strip().isdigit() or value.strip() in choices_of(kind, name):
            return written(name, value.strip())
        return written(name, None) + value

    flag = r"(?P<flag>--(?:set )?[a-z][a-z_]*(?:-[a-z]+)*)(?P<value> [\w-]+)?"
    return re.sub(rf"(?P<command>`layerwise [^`]*`)|{flag}", respelt, text)
