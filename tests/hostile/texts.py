"""Bad texts: what `--text` may name, and the tokenizers that read them."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import struct
from pathlib import Path

import pyarrow
from pyarrow import parquet

from hostile.case import Case
from hostile.material import Content, device, empty_folder, loop, model, nothing, pipe, put, sparse

SWEEP = ("sweep", "model", "--run", "run", "--families", "leave_one_out", "--no-similarity")
SCORED = "A text that is long enough to be scored, one character after the other. "
ENOUGH = "\n<|endoftext|>\n".join([SCORED] * 8)
"""Documents enough for an interval, without which a sweep concludes nothing and is refused."""

_NOISE = random.Random(0).randbytes(9999)


def _text(case: str, name: str, content: Content, says: tuple[str, ...] | None, *, text: str = "", **how: str) -> Case:
    """A sweep over the text `name` with this content, with more options."""

    def make(folder: Path) -> None:
        model(folder)
        put(folder / name, content)

    options = [each for option, value in how.items() for each in (f"--{option}", value)]
    return Case(case, (*SWEEP, "--text", text or name, *options), says, make)


def _lines(case: str, content: bytes, says: tuple[str, ...] | None) -> Case:
    return _text(f"JSON lines, {case}", "t.jsonl", content, says)


def _bomb(path: Path) -> bytes:
    """A gigabyte of the letter a in a megabyte."""
    once = gzip.compress(b"a" * (64 << 20), compresslevel=9)
    return once * 16  # gzip files one behind the other are one file


def _small_bomb(path: Path) -> bytes:
    """A bomb inside of a bomb's size: 1.3 GB of spaces and line ends in 1.3 MB."""
    return gzip.compress(b" \n" * (32 << 20), compresslevel=9) * 20


def _parquet_bomb(path: Path) -> bytes:
    """Two gigabytes of rows with one text in common, which is written once."""
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
    _text("an empty text", "text.txt", b"", ("text.txt is empty",)),
    _text("a text of white space", "text.txt", b" \n\t\n", ("is empty",)),
    _text("a text of null bytes", "text.txt", b"\0" * 1000, ("byte 0 is 0x00", "not UTF-8 text")),
    _text("a null byte inside of a text", "text.txt", SCORED.encode() + b"\0" + b"b", (f"byte {len(SCORED)} is 0x00",)),
    _text("a text in UTF-16", "text.txt", SCORED.encode("utf-16"), ("byte 0 is 0xff", "iconv")),
    _text("a text in Latin-1", "text.txt", "Zürich und Genève".encode("latin-1"), ("byte 1 is 0xfc",)),
    _text("an overlong encoding", "text.txt", b"abc \xc0\xaf def", ("byte 4 is 0xc0",)),
    _text("half of a surrogate pair", "text.txt", b"abc \xed\xa0\x80 def", ("byte 4 is 0xed",)),
    _text("a byte-order mark and a text", "text.txt", b"\xef\xbb\xbf" + ENOUGH.encode(), None),
    _text("a byte-order mark alone", "text.txt", b"\xef\xbb\xbf", ("is empty",)),
    _text("one token", "text.txt", b"a", ("has 1 token(s)",)),
    _text("characters that the tokenizer does not know", "text.txt", ENOUGH.replace("scored", "ééé ü").encode(), None),
    _text("a text of three gigabytes", "text.txt", sparse, ("3.2 GB", "text.txt")),
    _text("a gzip bomb", "text.txt.gz", _bomb, ("text.txt.gz", "unpacks to more than")),
    _text("a gzip bomb of white space", "text.txt.gz", _small_bomb, ("text.txt.gz", "unpacks to more than")),
    _text("a parquet bomb", "text.parquet", _parquet_bomb, ("text.parquet", "unpacks to more than")),
    _text("a gzip file that is none", "text.txt.gz", b"abc", ("is not a whole gzip file",)),
    _text("a gzip file cut short", "text.txt.gz", gzip.compress(SCORED.encode() * 99)[:-9], ("not a whole gzip file",)),
    _text("a gzip file with rubbish behind", "text.txt.gz", gzip.compress(b"ab") + b"rubbish!", ("whole gzip file",)),
    _text("an empty gzip file", "text.txt.gz", b"", ("is empty",)),
    _text("a gzip file of nothing", "text.txt.gz", gzip.compress(b""), ("is empty",)),
    _text("a damaged gzip file", "a.txt.gz", gzip.compress(_NOISE)[:500] + bytes(500), ("gzip file",)),
    _text("a pipe for a text", "text.txt", pipe, ("text.txt is a pipe", "name a file or a folder")),
    _text("a device for a text", "text.txt", device, ("text.txt is a device", "name a file or a folder")),
    _text("a folder whose only text is a pipe", "texts/a.txt", pipe, ("holds no text file",), text="texts"),
    _text("an endless device by its own name", "/dev/zero", nothing, ("/dev/zero is a device",)),
    _text("a link that leads to itself", "text.txt", loop, ("there is no text at text.txt",)),
    _text("a folder that contains itself", "texts", _folder_loop, None),
    _text("an empty folder", "texts", empty_folder, ("holds no text file",)),
    _text("a name with a line break", "two\nlines.txt", b"", ("is empty",)),
    _text("a name that is no UTF-8", NO_UTF8, ENOUGH, ("is no UTF-8", "rename it")),
    _text("a folder with a name that is no UTF-8", f"texts/{NO_UTF8}", ENOUGH, None, text="texts"),
    _text("a name of 5,000 characters", "a" * 5_000, nothing, ("--text was given", "cannot be looked up")),
    _text("a name with a null byte", "a\0b", nothing, ("null byte",)),
    _text("an empty name", "", nothing, ("--text was given an empty text",)),
    _text("a file inside of a file", "text.txt", b"abc", ("there is no text at",), text="text.txt/inner.txt"),
    _lines("a number of 5,000 digits", DIGITS, ("t.jsonl, line 1", "4,300 digits")),
    _lines("nested too deeply", NESTED, ("t.jsonl, line 1", "nested too deeply")),
    _lines("half of a surrogate pair", b'{"text": "a\\ud800b"}\n', ("t.jsonl, line 1", "surrogate")),
    _lines("an id of half a pair", b'{"text": "abc", "id": "\\udc00"}\n', ("line 1", "surrogate")),
    _lines("a task of half a pair", b'{"text": "abc", "task": "\\udc00"}', ("line 1", "surrogate")),
    _lines("a list", b'["a"]\n', ("t.jsonl, line 1", "list")),
    _lines("a text that is a number", _json(text=3), ("line 1", '"text"')),
    _lines("a text that is a list", _json(text=["a"]), ("line 1", '"text"')),
    _lines("keys without a text", _json(content="a"), ("the keys content",)),
    _lines("an id that is a list", _json(text=SCORED, id=["a"]), ("line 1", "id is ['a']")),
    _lines("a task that is an object", _json(text=SCORED, task={}), ("line 1", "task is {}")),
    _lines("a number for an id", b"".join(_json(text=SCORED, id=n) for n in range(8)), None),
    _lines("one document", _json(text=SCORED, id=7), ("1 window of", "needs at least 8", "--max-length")),
    _lines("two with one id", _json(text=SCORED, id=7) * 2, ("stand for more than one document",)),
    _lines("an answer that starts nowhere", _json(text="abc", answer_start=99), ("answer",)),
    _lines("an answer before the text", _json(text="abc", answer_start=-1), ("answer",)),
    _lines("a true answer", _json(text="abc", answer_start=True), ("answer_start is True",)),
    _lines("cut in the middle", _json(text=SCORED)[:-9], ("line 1: it is not JSON",)),
    _lines("20,000 keys without a text", _json(**{f"k{n}": 0 for n in range(20_000)}), ("line 1",)),
    _lines("with a null byte", b'{"text": "a\0b"}\n', ("0x00",)),
)


def _tokenizer(case: str, name: str, content: Content, *says: str) -> Case:
    return _text(case, name, content, says, text="model/config.json", tokenizer=name)


def _pieces(count: int, length: int) -> bytes:
    return struct.pack("<i", 4) + struct.pack("<fi", 0.0, length) * count


_OVERSIZED = json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 10**30}, "merges": []}}).encode()

_TOKENIZERS = (
    _tokenizer("an empty llama2.c tokenizer", "tok.bin", b"", "is not a llama2.c tokenizer"),
    _tokenizer("a llama2.c piece of two gigabytes", "tok.bin", _pieces(1, 2**31 - 1), "does not fit"),
    _tokenizer("a llama2.c piece of less than nothing", "tok.bin", _pieces(1, -5), "does not fit"),
    _tokenizer("a tokenizer.json that is no JSON", "t/tokenizer.json", b"{", "no tokenizer could be loaded from t"),
    _tokenizer("a tokenizer.json that is a list", "t/tokenizer.json", b"[]", "no tokenizer could be loaded from t"),
    _tokenizer("a tokenizer with an id out of range", "t/tokenizer.json", _OVERSIZED, "no tokenizer could be"),
    _tokenizer("a tokenizer of another kind of file", "tok.txt", b"abc", "no tokenizer could be loaded"),
    _tokenizer("a pipe for a tokenizer", "tok.bin", pipe, "tok.bin is a pipe"),
)

_FORBIDDEN = (
    ()
    if os.geteuid() == 0
    else (_text("a text that may not be read", "text.txt", _forbidden, ("cannot read text.txt",)),)
)

CASES = (*_TEXTS, *_TOKENIZERS, *_FORBIDDEN)
