"""Bad images, folders and datasets: damaged, too large, able to start a program, or losing bit depth."""

import io
import json
import random
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import pyarrow
from PIL import Image
from pyarrow import parquet

from hostile.case import Case
from hostile.material import Content, loop, pipe, put, sparse, vit

ASK = ("robustness", "model", "--images", "pictures", "--run", "run", "--orders", "1", "--draws", "2")


def picture(kind: str = "PNG", size: tuple[int, int] = (9, 7), mode: str = "RGB", seed: int = 0, **how: Any) -> bytes:
    channels = {"L": 1, "RGB": 3, "RGBA": 4}[mode]
    noise = numpy.random.default_rng(seed).integers(0, 256, (size[1], size[0], channels), dtype=numpy.uint8)
    content = io.BytesIO()
    Image.fromarray(noise.squeeze(), mode).save(content, kind, **how)
    return content.getvalue()


def pictures(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), count: int = 10) -> Path:
    for label, name in enumerate(classes):
        (folder / "pictures" / name).mkdir(parents=True)
        for number in range(count):
            path = folder / "pictures" / name / f"{number}.png"
            path.write_bytes(picture(mode="L", seed=100 * label + number))
    return folder / "pictures"


def _one(name: str, content: Content, *says: str) -> Case:
    def make(root: Path) -> None:
        vit(root)
        put(pictures(root) / "cat" / name, content)

    return Case(ASK, (f"cat/{name}: ", *says), make, f"{name} of {content!r:.60}")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, depth: int, color: int, rows: bytes = b"") -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


def _bomb(path: Path) -> bytes:
    """Write a PNG of a few kilobytes with 64,000 x 64,000 pixels."""
    return png(64_000, 64_000, 8, 2, bytes(10_000))


def _near_bomb(path: Path) -> bytes:
    """Write 13,000 x 13,000 black pixels: below Pillow's limit, but a gigabyte with copies."""
    return png(13_000, 13_000, 8, 2, (b"\0" + bytes(3 * 13_000)) * 13_000)


def _deep(color: int, channels: int) -> bytes:
    values = numpy.random.default_rng(0).integers(0, 2**16, (7, 9 * channels), dtype=numpy.uint16).astype(">u2")
    return png(9, 7, 16, color, b"".join(b"\0" + row.tobytes() for row in values))


def _deep_tiff(path: Path) -> bytes:
    entries = [
        (256, 4, 1, 9),
        (257, 4, 1, 7),
        (258, 3, 3, 8 + 2 + 12 * 10 + 4),
        (259, 3, 1, 1),
        (262, 3, 1, 2),
        (273, 4, 1, 200),
        (277, 3, 1, 3),
        (278, 4, 1, 7),
        (279, 4, 1, 9 * 7 * 6),
        (284, 3, 1, 1),
    ]
    head = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 10)
    head += b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4) + struct.pack("<HHH", 16, 16, 16)
    return head.ljust(200, b"\0") + random.Random(0).randbytes(9 * 7 * 6)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 7\n%%EndComments\nshowpage\n%%EOF\n"


def _ghostscript(root: Path) -> None:
    """Write an EPS file named like a PNG, and a fake Ghostscript that records its call."""
    vit(root)
    (pictures(root) / "cat" / "x.png").write_bytes(EPS)
    program = root / "programs" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {root}/it-was-run\n")
    program.chmod(0o755)


_IMAGES = (
    Case(
        (*ASK,),
        ("cat/x.png: not an image of a known format",),
        _ghostscript,
        environment={"PATH": "programs:/usr/bin:/bin"},
    ),
    _one("x.png", b"", "not an image"),
    _one("x.png", lambda path: picture(size=(99, 99))[:5_000], "truncated"),
    _one("x.jpg", lambda path: picture("JPEG", (99, 99))[:3_000], "truncated"),
    _one("x.png", picture()[:40] + b"\0\0" + picture()[42:], "not an image"),
    _one("x.png", _bomb, " pixels"),
    _one("x.png", _near_bomb, "13,000 x 13,000"),
    _one("x.gif", b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(99), "not an image"),
    _one("x.ppm", b"P6 1000000 1000000 255\n", " pixels"),
    _one("x.ppm", b"P6 9 7 65535\n" + bytes(9 * 7 * 6), "at most 8 bits"),
    _one("x.png", lambda path: _deep(2, 3), "at most 8 bits"),
    _one("x.tif", _deep_tiff, "at most 8 bits"),
    _one("x.png", b"\0\0\1\0\1\0" + bytes(99), "not an image of a known format"),
    _one("x.png", b"%PDF-1.7\n" + bytes(99), "not an image of a known format"),
    _one("x.bmp", b"\xd7\xcd\xc6\x9a" + bytes(99), "not an image of a known format"),
    _one("a\nb.png", b"", "not an image"),
)


def _folder(make: Callable[[Path], object], *says: str) -> Case:
    return Case(ASK, says, lambda root: (vit(root), make(root)))


def _among(name: str, content: Content, *says: str) -> Case:
    return _folder(lambda root: put(pictures(root) / "cat" / name, content), *says)


def _inside(name: str, content: bytes, *says: str) -> Case:
    return _folder(lambda root: put(root / "pictures" / name, content), *says)


def _image_table(contents: list[bytes | str | None], labels: list[Any] | None) -> Callable[[Path], None]:
    """Write a dataset as `datasets` does; a string is the path of a local image."""

    def make(root: Path) -> None:
        (root / "secret.png").write_bytes(picture(mode="L"))
        features = {"image": {"_type": "Image"}, "label": {"dtype": "int64", "_type": "Value"}}
        kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        rows = [
            {"bytes": None, "path": each} if isinstance(each, str) else {"bytes": each, "path": None}
            for each in contents
        ]
        columns = {"image": pyarrow.array(rows, kind), "label": labels}
        table = pyarrow.table({name: values for name, values in columns.items() if values is not None})
        features = {name: features[name] for name in table.column_names}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        (root / "pictures").mkdir()
        parquet.write_table(table, root / "pictures" / "train.parquet")

    return make


_GOOD = [picture(mode="L", seed=seed) for seed in range(20)]
_LABELS = [number % 2 for number in range(20)]


def _last_row(last: bytes | str | None) -> Callable[[Path], None]:
    return _image_table([*_GOOD[:19], last], _LABELS)


_FOLDERS = (
    _folder(lambda root: pictures(root, ("cat",)), "(at least two)"),
    _among("x.png", pipe, "must have 2 outputs"),
    _among("x.png", loop, "must have 2 outputs"),
    _among("again", lambda path: path.symlink_to(path.parent, True), "must have 2 outputs"),
    _among("x.png", sparse, "cat/x.png: ", "3.2 GB"),
    _inside("train.parquet", b"PAR1" + bytes(99) + b"PAR1", "pictures"),
    _inside("state.json", b"{", "pictures"),
    _folder(_image_table(_GOOD, [[number] for number in _LABELS]), "label"),
    _folder(_image_table(_GOOD, [-1] * 20), "at least two classes, got 0"),
    _folder(_last_row(None), "train[19]"),
    _folder(_last_row(EPS), "train[19]: not an"),
    _folder(_last_row("../secret.png"), "train[19]: the row names"),
    _folder(_last_row("/etc/passwd"), "train[19]: not an image"),
    _folder(_last_row("http://127.0.0.1:9/x.png"), "train[19]: ", "127.0.0.1"),
)


def _settings(content: object, *says: str) -> Case:
    def make(root: Path) -> None:
        put(vit(root) / "preprocessor_config.json", content if isinstance(content, bytes) else json.dumps(content))
        pictures(root)

    return Case(ASK, says, make, f"{content!r:.80}")


_VIT: Mapping[str, object] = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}}

_SETTINGS = (
    _settings(b"{", "preprocessor_config.json"),
    _settings(b'{"a":' * 50_000, "preprocessor_config.json"),
    _settings({"image_processor_type": "None"}, "preprocessor_config"),
    _settings({**_VIT, "size": "large"}, "preprocessor_config.json"),
    _settings({**_VIT, "size": {"height": 10**9, "width": 10**9}}, "preprocessor_config.json"),
    _settings({**_VIT, "resample": 99}, "preprocessor_config.json"),
    _settings({**_VIT, "image_mean": "gray"}, "preprocessor_config.json"),
)


CASES = (*_IMAGES, *_FOLDERS, *_SETTINGS)
