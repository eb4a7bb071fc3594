"""The words beside the numbers: Markdown files in the package, one for each kind of run.

    # healing | What healing brings back | Healing
    The lead of the section whose anchor is `healing`: how to read what follows. Its title and its name in the menu
    stand beside the anchor.

    ## missing
    The line that stands there where nothing was healed.

    ## nats | Nats a token above the whole model
    The title of the part `nats`, and the note under it.

A file holds paragraphs alone. `prose("healing")["healing"]` is the lead, `prose("healing")["healing/nats"]` the note,
`titles("healing")["healing/nats"]` the title.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def prose(kind: str) -> dict[str, str]:
    """What the file of a kind says, by the section, and by the section and the name of a part."""
    return {key: " ".join(lines) for key, (_, lines) in _read(kind).items() if lines}


@cache
def titles(kind: str) -> dict[str, tuple[str, ...]]:
    """The titles of a kind, by the section, and by the section and the name of a part."""
    return {key: named for key, (named, _) in _read(kind).items() if named}


def _read(kind: str) -> dict[str, tuple[tuple[str, ...], list[str]]]:
    """The titles and the lines under every heading."""
    text = files("layerwise.report").joinpath(f"kinds/{kind}.md").read_text(encoding="utf-8")
    words: dict[str, tuple[tuple[str, ...], list[str]]] = {}
    section, key = "", ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith(("# ", "## ")):
            hashes, rest = line.split(" ", 1)
            name, *named = rest.split(" | ")
            section = name if hashes == "#" else section
            key = name if hashes == "#" else f"{section}/{name}"
            words[key] = (tuple(named), [])
        elif line:
            words[key][1].append(line)
    return words
