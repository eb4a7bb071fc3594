"""Bad arguments of `--text`, and bad tokenizers."""

import gzip
import io
import json
import os
import random
import struct
from pathlib import Path

import pyarrow
from pyarrow import parquet

from hostile.case import Case, Says
from hostile.material import Content, device, empty_folder, loop, model, nothing, pipe, put, sparse

SWEEP = ("sweep", "model", "--run", "run", "--families", "leave_one_out", "--no-similarity")
SCORED = "A text that is long enough to be scored, one character after the other. "
ENOUGH = "\n<|endoftext|>\n".join(f"{number} {SCORED}" for number in range(8))
"""With fewer documents a sweep has no interval and is refused."""

_NOISE = random.Random(0).randbytes(9999)


def _text(name: str, content: Content, says: Says, *, text: str = "", **how: str) -> Case:
    def make(folder: Path) -> None:
        model(folder)
        put(folder / name, content)

    options = [each for option, value in how.items() for each in (f"--{option}", value)]
    return Case((*SWEEP, "--text", text or name, *options), says, make, f"{name!r:.40} of {content!r:.60}")


def _lines(content: bytes, says: Says) -> Case:
    return _text("t.jsonl", content, says)


def _bomb(path: Path) -> bytes:
    """Write a gigabyte of the letter a in a megabyte."""
    once = gzip.compress(b"a" * (64 << 20), compresslevel=9)
    return once * 16  # gzip files one behind the other are one file


def _small_bomb(path: Path) -> bytes:
    """Write 1.3 GB of spaces and newlines in 1.3 MB, below the size limit."""
    return gzip.compress(b" \n" * (32 << 20), compresslevel=9) * 20


def _parquet_bomb(path: Path) -> bytes:
    """Write two gigabytes of rows with one common text, stored once."""
    rows = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2_048, pyarrow.int32()), ["a" * 2**20])
    content = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": rows}), content)
    return content.getvalue()


def _folder_loop(path: Path) -> None:
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "again").symlink_to(path, target_is_directory=True)
    (path / "a.txt").write_text(ENOUGH)


def _forbidden(path: Path) -> None:
    path.write_text(SCORED)
    path.chmod(0)


NO_UTF8 = os.fsdecode(b"\xff\xfe.txt")


def _json(**values: object) -> bytes:
    return json.dumps(values).encode() + b"\n"


NESTED = b'{"text": "a", "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
DIGITS = b'{"text": "a", "id": ' + b"7" * 5_000 + b"}\n"

_TEXTS = (
    _text("text.txt", b"", "text.txt is empty"),
    _text("text.txt", b"\0" * 1000, ("byte 0 is 0x00", "not UTF-8 text")),
    _text("text.txt", SCORED.encode() + b"\0" + b"b", f"byte {len(SCORED)} is 0x00"),
    _text("text.txt", SCORED.encode("utf-16"), ("byte 0 is 0xff", "iconv")),
    _text("text.txt", "Zürich und Genève".encode("latin-1"), "byte 1 is 0xfc"),
    _text("text.txt", b"abc \xc0\xaf def", "byte 4 is 0xc0"),
    _text("text.txt", b"\xef\xbb\xbf" + ENOUGH.encode(), None),
    _text("text.txt", b"\xef\xbb\xbf", "is empty"),
    _text("text.txt", b"a", "at least 2 tokens to be scored, got 1"),
    _text("text.txt", ENOUGH.replace("scored", "ééé ü").encode(), None),
    _text("text.txt", sparse, ("3.2 GB", "text.txt")),
    _text("text.txt.gz", _bomb, ("text.txt.gz", "decompresses to more than")),
    _text("text.txt.gz", _small_bomb, ("text.txt.gz", "decompresses to more than")),
    _text("text.parquet", _parquet_bomb, ("text.parquet", "decompresses to more than")),
    _text("text.txt.gz", b"abc", "is not a complete gzip file"),
    _text("text.txt.gz", gzip.compress(SCORED.encode() * 99)[:-9], "not a complete gzip file"),
    _text("a.txt.gz", gzip.compress(_NOISE)[:500] + bytes(500), "gzip file"),
    _text("text.txt", pipe, ("text.txt is a pipe", "pass a readable file or directory")),
    _text("text.txt", device, ("text.txt is a device", "pass a readable file or directory")),
    _text("texts/a.txt", pipe, "has no text files", text="texts"),
    _text("/dev/zero", nothing, "/dev/zero is a device"),
    _text("text.txt", loop, "text.txt does not exist"),
    _text("texts", _folder_loop, None),
    _text("texts", empty_folder, "has no text files"),
    _text("two\nlines.txt", b"", "is empty"),
    _text(NO_UTF8, ENOUGH, ("must be valid UTF-8", "Rename the file")),
    _text(f"texts/{NO_UTF8}", ENOUGH, None, text="texts"),
    _text("a" * 5_000, nothing, "--text must be a valid path"),
    _text("a\0b", nothing, "null byte"),
    _text("", nothing, "--text must not be empty"),
    _text("text.txt", b"abc", "does not exist", text="text.txt/inner.txt"),
    _lines(DIGITS, ("t.jsonl, line 1", "4,300 digits")),
    _lines(NESTED, ("t.jsonl, line 1", "nested too deeply")),
    _lines(b'{"text": "a\\ud800b"}\n', ("t.jsonl, line 1", "surrogate")),
    _lines(b'["a"]\n', ("t.jsonl, line 1", "list")),
    _lines(_json(text=3), ("line 1", '"text"')),
    _lines(_json(text=SCORED, id=["a"]), ("line 1", "id must be text or an integer, got ['a']")),
    _lines(b"".join(_json(text=f"{n} {SCORED}", id=n) for n in range(8)), None),
    _lines(_json(text=SCORED, id=7), ("1 window with", "at least 8", "--max-length")),
    _lines(_json(text=SCORED, id=7) * 2, "must be unique"),
    _lines(_json(text="abc", answer_start=99), "answer"),
    _lines(_json(text="abc", answer_start=True), "answer_start must be a number of characters, got True"),
    _lines(_json(text=SCORED)[:-9], "line 1: it is not JSON"),
    _lines(_json(**{f"k{n}": 0 for n in range(20_000)}), "line 1"),
    _lines(b'{"text": "a\0b"}\n', "0x00"),
)


def _tokenizer(name: str, content: Content, says: Says) -> Case:
    return _text(name, content, says, text="model/config.json", tokenizer=name)


def _pieces(count: int, length: int) -> bytes:
    return struct.pack("<i", 4) + struct.pack("<fi", 0.0, length) * count


_OVERSIZED = json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 10**30}, "merges": []}}).encode()

_TOKENIZERS = (
    _tokenizer("tok.bin", b"", "is not a llama2.c tokenizer"),
    _tokenizer("tok.bin", _pieces(1, 2**31 - 1), "does not fit"),
    _tokenizer("tok.bin", _pieces(1, -5), "does not fit"),
    _tokenizer("t/tokenizer.json", b"{", "Cannot load a tokenizer from t"),
    _tokenizer("t/tokenizer.json", _OVERSIZED, "Cannot load a tokenizer"),
    _tokenizer("tok.txt", b"abc", "Cannot load a tokenizer"),
)

_FORBIDDEN = () if os.geteuid() == 0 else (_text("text.txt", _forbidden, "text.txt cannot be read"),)

CASES = (*_TEXTS, *_TOKENIZERS, *_FORBIDDEN)
