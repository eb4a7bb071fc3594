"""A million random strings, half of them mutated plans: each is a plan that survives its text, or a `PlanError`."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from layerwise.errors import PlanError
from layerwise.plan import Plan

TEXTS = (
    "0-31",
    "0-13 18-31",
    "0-13 17-14 18-31",
    "0-13 15*4 18-31",
    "0-13 (14|15|16|17) 18-31",
    "0-13 (14|15|16|17)*3 18-31",
    "0-5 (6 7|8 9):sum 10-31",
    "0-44 [45-51]*2 52-79",
    "(0|1):gain=0.5 [2 (3 4|[5 6]*2):gain=-1e-3*2]*3",
    "[[[0]*99]*99]*99",
    "((((0|1)|2)|3)|4)",
    "0-999",
    "0-11 12.mlp 13-29",
    "(12.attn|12.mlp):sum*2 8-11.mlp [3.attn*4]*2",
    "a:0-3 b:4-7 (a:8|run_2:9.attn*2) m-1:31-28.mlp 0",
)
LANGUAGE = "0123456789 -*|()[]:=.egainsummeanattnmlpb_"
PIECES = (
    *("0", "7", "12", "9999", "100000", "9" * 9, "-", "*", "*2", " ", " ", "(", "|", ")", "[", "]"),
    *(":sum", ":gain=", ".", ".attn", ".mlp", "a:", "run-2:", "b"),
)
STRANGE = "\x00\n\t\r\x85\u00a0\u2013\u0663\u0967\u2167\u00b2\u00d7\ud800\ufeff\U0001f600,;{}<>_+~"


def mutated(chance: random.Random) -> str:
    characters = list(chance.choice(TEXTS))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(characters) + 1)
        match chance.randrange(5):
            case 0:
                characters[at : at + 1] = chance.choice(LANGUAGE)
            case 1:
                characters[at:at] = characters[at : at + chance.randint(1, 12)]
            case 2:
                del characters[at : at + chance.randint(1, 3)]
            case 3:
                other = chance.choice(TEXTS)
                start = chance.randrange(len(other))
                characters[at:at] = other[start : start + chance.randint(1, 20)]
            case _:
                characters[at:at] = chance.choice(STRANGE)
    return "".join(characters)


def from_language(chance: random.Random) -> str:
    return "".join(chance.choices(LANGUAGE, k=chance.randint(0, 24)))


def from_pieces(chance: random.Random) -> str:
    return "".join(chance.choices(PIECES, k=chance.randint(1, 30)))


def from_unicode(chance: random.Random) -> str:
    return "".join(chr(chance.randrange(0x110000)) for _ in range(chance.randint(0, 8)))


MAKERS: tuple[Callable[[random.Random], str], ...] = (*[mutated] * 3, from_language, from_pieces, from_unicode)


def plan_or_refusal(text: str) -> Plan | PlanError:
    try:
        return Plan.parse(text)
    except PlanError as refused:
        return refused
    except Exception as error:
        raise AssertionError(f"{text!r} is neither a plan nor a PlanError") from error


def outcomes(count: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    found: Counter[str] = Counter()
    for _ in range(count):
        text = chance.choice(MAKERS)(chance)
        read = plan_or_refusal(text)
        if isinstance(read, Plan):
            assert Plan.parse(str(read)) == read, f"{text!r} does not survive as {read}"
        else:
            position = read.position
            assert position is not None, f"{text!r} is refused without a position"
            assert 0 <= position <= len(text), f"{text!r} is refused outside the text"
        found[type(read).__name__] += 1
    return found


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        (2_000, 3),
        pytest.param(10_000, 4, marks=pytest.mark.slow),
        pytest.param(1_000_000, 2, marks=pytest.mark.nightly),
    ],
)
def test_every_string_is_a_plan_or_refused(count: int, seed: int) -> None:
    found = outcomes(count, seed)
    assert found.total() == count
    assert found["Plan"] > 0.05 * count
    assert found["PlanError"] > 0.5 * count
