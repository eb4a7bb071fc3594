"""Bad input ends with code 2 and one or two sentences, loses nothing, and needs little memory and time."""

from dataclasses import replace
from typing import Any

import pytest

from apart import Ended
from hostile.case import MEMORY, Case, faults, words
from hostile.runner import CASES, described, failed

SHARES = 2


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_every_case_is_refused_or_right(share: int) -> None:
    found = [described(*each) for each in failed(range(share, len(CASES), SHARES))]
    assert not found, "\n\n".join(["", *found])


def test_every_refusal_has_words_that_it_must_hold() -> None:
    assert [str(case) for case in CASES if case.says is not None and not all(words(case.says) or [""])] == []


REFUSAL = Case(("verify", "model"), "is empty")
REFUSED = Ended(2, "", "loading\nerror: text.txt is empty: remove it, or fill it.", rss=400 << 20)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"code": 1}, "code 1, not 2"),
        ({"code": -9, "killed": "memory"}, "too much memory"),
        ({"rss": MEMORY + 1}, "it held 1,536 MB"),
        ({"err": "Traceback (most recent call last):\nerror: a text is empty"}, "a traceback"),
        ({"err": "text.txt is empty"}, "not one line that begins with `error: `"),
        ({"err": "error: text.txt is not there"}, "does not say 'is empty'"),
        ({"err": "error: it is empty. Fill it. Or remove it."}, "3 sentences"),
        ({"err": "error: it is empty" + "!" * 900}, "characters"),
        ({"out": "plan"}, "it printed 'plan'"),
    ],
)
def test_what_is_wrong_with_a_refusal_is_found(change: dict[str, Any], fault: str) -> None:
    assert faults(REFUSAL, REFUSED) == []
    assert fault in "; ".join(faults(REFUSAL, replace(REFUSED, **change)))
