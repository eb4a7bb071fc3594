"""What the command line could not read, in words: a near match that harms nothing, the verbs that know an option, or
the quotes that a plan lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from cyclopts import CycloptsError, UnknownOptionError, UnusedCliTokensError

from layerwise.errors import LayerwiseError
from layerwise.experiments.catalogue import VERBS, configuration, renamed
from layerwise.experiments.option import CONSEQUENTIAL, flag_of, options_of, settings_of
from layerwise.plan import Plan

LENGTHS = ("steps", "epochs")
"""The options that say how long a training is, for those who look for `--tokens`."""

PLANS = ("--plan", "--draft")
"""The options whose value is a plan."""

_NAMED = 4  # verbs in a refusal


def unread(error: CycloptsError, words: Sequence[str]) -> str:
    """Why the words of a command cannot be read, and what to write instead."""
    if split := next(_split_plans(words), None):
        flag, plan = split
        return f'a plan with spaces is one word for the shell only in quotes; write {flag} "{plan}"'
    for old in (" ".join(words[:2]), *words[:1]):
        if instead := renamed(old):
            return f"{old} has another name now: {instead}"
    if isinstance(error, UnknownOptionError):
        return _unknown(error)
    if isinstance(error, UnusedCliTokensError):
        rest = " ".join(error.unused_tokens or ())
        return f"nothing takes {rest!r}: quote a value that has spaces, and join the names of a list with commas"
    # The list of all commands is left out: the near match is named, and the help has the list.
    return str(error).partition(" Available commands:")[0]


def _unknown(error: UnknownOptionError) -> str:
    flag = (error.token.keyword or error.token.value).partition("=")[0]
    verb = " ".join(error.command_chain or ())
    if verb in VERBS and (name := flag.lstrip("-").replace("-", "_")) in settings_of(configuration(verb)):
        return f"{flag} is a setting of layerwise {verb}: write --set {name}=VALUE"
    if (verb, flag) == ("report", "--markdown"):
        return "report --markdown has another name now: write --format markdown"
    known = [each for each in VERBS if flag in _flags(each)]
    text = f"Unknown option: {flag}."
    if known:
        more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        text = f"{verb} has no {flag}, which is an option of {', '.join(known[:_NAMED])}{more}."
        lengths = [f"--{name}" for name in LENGTHS if verb in VERBS and f"--{name}" in _flags(verb)]
        if flag == "--tokens" and lengths:
            text += f" How long it trains is said by {' or '.join(lengths)}."
        return text
    names = {name.lstrip("-"): name for each in error.argument_collection if each.parse for name in each.names}
    harmless = [name for name in names if name.replace("-", "_") not in CONSEQUENTIAL]
    near = get_close_matches(flag.lstrip("-"), harmless, n=1)
    return f"{text} Did you mean {names[near[0]]}?" if near else text


def _flags(verb: str) -> set[str]:
    kind = configuration(verb)
    return {flag_of(kind, name) for name in options_of(kind)}


def _split_plans(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options whose plan stands in several words, each with the whole plan."""
    for at, flag in enumerate(words):
        if flag in PLANS:
            pieces = []
            for word in words[at + 1 :]:
                if not _is_plan(word):
                    break
                pieces.append(word)
            if len(pieces) > 1:
                yield flag, " ".join(pieces)


def _is_plan(text: str) -> bool:
    try:
        Plan.parse(text)
    except LayerwiseError:
        return False
    return True
