"""Bad tables of evaluation suites: minimal pairs, GLUE, MSGS, archives, and metadata of trained models."""

import gzip
import io
import json
import random
import zipfile
from functools import partial
from pathlib import Path

from hostile.case import Case
from hostile.material import Content, loop, model, nothing, put

EVALUATE = ("evaluate", "model", "--run", "run", "--suite", "p.jsonl")
PAIR = {"sentence_good": "the cat sleeps", "sentence_bad": "the cat sleep"}


def _line(**changes: object) -> bytes:
    return json.dumps(PAIR | changes).encode() + b"\n"


_NOISE = random.Random(0).randbytes(9999)


def _pairs(name: str, content: Content, *says: str) -> Case:
    def make(folder: Path) -> None:
        model(folder)
        put(folder / name, content)

    return Case((*EVALUATE[:-1], name), (name[:99], *says), make, f"{content!r:.80}")


def _zip(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, inside in members.items():
            archive.writestr(name.replace("__", "."), inside)
    return content.getvalue()


def _damaged_zip(path: Path) -> bytes:
    """Write an archive with a wrong checksum."""
    whole = _zip(p__jsonl=_NOISE)
    return whole[:5000] + bytes(40) + whole[5040:]


def _zip_bomb(path: Path) -> bytes:
    """Write 128 megabytes of spaces in 128 kilobytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("p.jsonl", "w") as file:
        for _ in range(2):
            file.write(b" " * (64 << 20))
    return content.getvalue()


def _lying_zip(path: Path) -> bytes:
    """Write an archive whose header understates a member of sixty megabytes."""
    content = bytearray(_zip(p__jsonl=b" " * (60 << 20)))
    size = (60 << 20).to_bytes(4, "little")
    while (at := content.find(size)) >= 0:
        content[at : at + 4] = (99).to_bytes(4, "little")
    return bytes(content)


def _bomb(letter: bytes, path: Path) -> bytes:
    """Write a gigabyte of one letter in a megabyte."""
    return gzip.compress(letter * (64 << 20)) * 16


HEADER = b"sentence_good,sentence_bad\n"

_PAIRS = (
    _pairs("p.jsonl", b"", "at least one row"),
    _pairs("p.jsonl", b"\0" * 99, "byte 0 is 0x00"),
    _pairs("p.jsonl", b"[]\n", "line 1", "list"),
    _pairs("p.jsonl", _line(sentence_good=3), "line 1", "got 3"),
    _pairs("p.jsonl", b'{"sentence_good": "a"}', "unknown column 'sentence_bad'"),
    _pairs("p.jsonl", _line(sentence_bad="a\ud800"), "line 1", "unpaired surrogate"),
    _pairs("p.jsonl", _line(UID=3), "line 1", "'UID' must be text, got 3"),
    _pairs("p.jsonl", json.dumps({f"k{n}": 0 for n in range(20_000)}).encode(), "unknown column"),
    _pairs("p.csv", HEADER + b'"' + b"a" * 999_999 + b'",b\n', "line 2", "field"),
    _pairs("p.csv", HEADER + b'"abc,def\n', "line 2"),
    _pairs("p.csv", HEADER + b"a,b,c\n", "must have 2 columns"),
    _pairs("p.csv", HEADER + b"a\0b,c\n", "is 0x00"),
    _pairs("p.csv", b",\na,b\n", "twice"),
    _pairs("p.csv", b"\xff\xfe\0a", "UTF-8"),
    _pairs("p.jsonl.gz", gzip.compress(_line() * 99)[:-9], "p.jsonl.gz"),
    _pairs("p.csv.gz", partial(_bomb, b"\n"), "decompresses to more than"),
    _pairs("p.xlsx", b"PK\5\6" + bytes(18), "p.xlsx"),
    _pairs("p.zip", lambda path: _zip(a__txt=b"abc"), "no .jsonl"),
    _pairs("p.zip", lambda path: _zip(p__jsonl=_line() * 99)[:-30], "p.zip"),
    _pairs("p.zip", _damaged_zip, "cannot be read", "Download the archive again"),
    _pairs("p.zip", _zip_bomb, "must decompress to at most"),
    _pairs("p.zip", _lying_zip, "p.zip"),
    _pairs("p.zip", lambda path: _zip(**{"../p__jsonl": b"{"}), "line 1"),
    Case(
        EVALUATE,
        ("--too-long skip",),
        lambda folder: put(model(folder).parent / "p.jsonl", _line(sentence_bad="a b " * 9_999)),
        writes=("run", "run/*"),
    ),
    _pairs("p.jsonl", loop, "unknown suite or file"),
    _pairs("a" * 5_000, nothing, "unknown suite or file"),
)


def _suite(suite: str, files: dict[str, bytes], *says: str) -> Case:
    def make(folder: Path) -> None:
        model(folder)
        (folder / "data").mkdir()
        for name, content in files.items():
            put(folder / "data" / name, content)

    return Case(("evaluate", "model", "--suite", suite, "--data", "data", "--run", "run"), says, make, f"{files!r:.80}")


def _rows(*rows: dict[str, object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _rte(*rows: dict[str, object]) -> dict[str, bytes]:
    good = [{"sentence1": f"a {number}", "sentence2": "b", "label": number % 2} for number in range(40)]
    return {"rte.train.jsonl": _rows(*rows, *good), "rte.valid.jsonl": _rows(*good[:4])}


_GLUE_ROW = {"sentence1": "a", "sentence2": "b", "label": 0}
_WSC = {"text": "the cat saw it", "span1_text": "the cat", "span2_text": "it", "span2_index": 3, "label": 0}


def _wsc(**changes: object) -> dict[str, bytes]:
    return {"wsc.train.jsonl": _rows(_WSC | changes), "wsc.valid.jsonl": _rows(_WSC)}


_MSGS = {"sentence": "a b", "linguistic_feature_label": 1, "surface_feature_label": 1, "condition": "training"}


def _msgs(**changes: object) -> dict[str, bytes]:
    name = "main_verb_length"
    return {f"{name}/train.jsonl": _rows(_MSGS | changes), f"{name}/test.jsonl": _rows(_MSGS)}


_SUITES = (
    _suite("glue", _rte(_GLUE_ROW | {"label": "yes"}), "line 1", "'label' must be", "got 'yes'"),
    _suite("glue", _rte(_GLUE_ROW | {"sentence1": 3}), "line 1", "got 3"),
    _suite("glue", _rte(_GLUE_ROW | {"sentence2": "\ud800"}), "line 1", "unpaired surrogate"),
    _suite("glue", {"rte.train.jsonl": _rows(_GLUE_ROW), "rte.valid.jsonl": _rows(_GLUE_ROW)}, "rte"),
    _suite("glue", _wsc(span2_index="three"), "line 1", "'span2_index' must be", "got 'three'"),
    _suite("glue", _wsc(span2_index=10**20), "line 1", "'span2_index' must be", "got 1000"),
    _suite("msgs", _msgs(condition=1), "line 1", "'condition' must be text, got 1"),
    _suite("blimp", {}, "data has no blimp"),
    _suite("blimp", {"blimp.jsonl": _line()}, "blimp.jsonl is named like blimp"),
    _suite(
        "ewok",
        {"ewok.zip": _zip(e__jsonl=_rows({"Context1": 1, "Context2": 2, "Target1": 3, "Target2": 4, "Domain": "d"}))},
        "line 1",
        "'Context1' must be text, got 1",
    ),
    _suite("ewok", {"ewok.zip": _zip(e__jsonl=_rows({"Target1": "a", "Domain": "d"}))}, "line 1"),
)


def _record(content: object, *says: str) -> Case:
    asked = ("evaluate", "model")
    written = content if isinstance(content, bytes) else json.dumps(content)
    return Case(asked, ("training.json", *says), lambda folder: put(model(folder) / "training.json", written))


_GOOD = {
    "variant": "wiring",
    "seed": 0,
    "base": "ab",
    "data": "cd",
    "data_name": "texts",
    "recipe": {"extension": "wiring"},
    "steps": 1,
    "epochs": 1.0,
    "examples": 1,
    "seconds": 1.0,
    "best_step": 1,
    "history": [],
}

_ANOTHER = {"extension": "wiring", "wiring": {"a": 1}}
_RECORDS = (
    _record(bytes(range(256))),
    _record(_GOOD, "options in the recipe"),
    _record({**_GOOD, "recipe": _ANOTHER}, "options in the recipe"),
)

CASES = (*_PAIRS, *_SUITES, *_RECORDS)
