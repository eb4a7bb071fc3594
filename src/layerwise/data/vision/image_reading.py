"""Read image sets: their digests and pixels, and which files are damaged.

Every image is decoded once, in threads. The results are kept in the cache (`layerwise.data.cache_folder`) as a
memory-mapped table, so nothing is read again unless the set or its preprocessing changes. If the cache is not writable,
the table is kept in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import PIL
import transformers
from datasets import Dataset, Features, Value

from layerwise.data.cache_folder import cache_folder
from layerwise.data.vision.image_sources import ImageSource, decode_image, describe_error
from layerwise.data.vision.preprocessing import Preprocessing
from layerwise.errors import DataError

_BATCH = 64

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, eq=False)
class ReadImages:
    """The SHA-256 of every image in `digests`, and the `faults` of damaged images. All keys are image names.

    `pixels` is a column of bytes, or None if pixels are not kept. `rows` maps each image to its row in this column.
    """

    digests: Mapping[str, bytes]
    faults: Mapping[str, str]
    pixels: Any
    rows: Mapping[str, int]


def read_image_rows(
    pictures: Iterable[ImageSource],
    preprocessing: Preprocessing | None,
    fingerprint: str | None,
    progress: Progress | None = None,
) -> ReadImages:
    """Read images, and keep their pixels if `preprocessing` is given.

    `progress(done, total)` is called after every image, from the calling thread.
    """
    # Sorted by name, so that the table does not depend on the split.
    ordered = sorted(pictures, key=lambda each: each.name)
    names = [picture.name for picture in ordered]
    inputs = [PIL.__version__, transformers.__version__, repr(preprocessing), fingerprint, names]
    key = sha256(json.dumps(inputs).encode()).hexdigest()
    file = None if fingerprint is None else cache_folder() / "images" / f"{key}.arrow"
    table = _read_table(ordered, preprocessing, key, file, progress)
    reasons = list(table["fault"])
    if any(
        reason and _look(picture, preprocessing)[1] is None for picture, reason in zip(ordered, reasons, strict=True)
    ):
        # The disk or network has recovered from an earlier failure.
        if file is not None:
            file.unlink(missing_ok=True)
        table = _read_table(ordered, preprocessing, key, file, progress)
        reasons = list(table["fault"])
    faults = {name: reason for name, reason in zip(names, reasons, strict=True) if reason is not None}
    digests = dict(zip(names, table["digest"], strict=True))
    pixels = None if preprocessing is None else table.data.column("pixels")
    return ReadImages(digests, faults, pixels, {name: row for row, name in enumerate(names)})


def _read_table(
    pictures: Sequence[ImageSource],
    preprocessing: Preprocessing | None,
    key: str,
    file: Path | None,
    progress: Progress | None,
) -> Any:
    features = Features({"digest": Value("binary"), "fault": Value("string"), "pixels": Value("large_binary")})

    def look(rows: dict[str, list[int]]) -> dict[str, list[Any]]:
        results = []
        for row, result in zip(
            rows["row"], threads.map(lambda row: _look(pictures[row], preprocessing), rows["row"]), strict=True
        ):
            results.append(result)
            if progress is not None:
                progress(row + 1, len(pictures))
        return dict(zip(features, map(list, zip(*results, strict=True)), strict=True))

    def read(**kept: Any) -> Any:
        return rows.map(
            look,
            batched=True,
            batch_size=_BATCH,
            writer_batch_size=_BATCH,
            remove_columns=["row"],
            features=features,
            new_fingerprint=key[:32],
            **kept,
        )

    rows = Dataset.from_dict({"row": range(len(pictures))})
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        if file is not None:
            # A damaged cache file is rewritten; if that fails, the table is kept in memory.
            for _ in range(2):
                with suppress(OSError, ValueError):
                    file.parent.mkdir(parents=True, exist_ok=True)
                    return read(cache_file_name=str(file))
                with suppress(OSError):
                    file.unlink(missing_ok=True)
        return read(keep_in_memory=True)


def _look(picture: ImageSource, preprocessing: Preprocessing | None) -> tuple[bytes, str | None, bytes | None]:
    content, pixels = b"", None
    try:
        content = picture.read()
        image = decode_image(content)
        if preprocessing is not None:
            pixels = preprocessing.pixels(image).numpy().tobytes()
    except (DataError, OSError) as error:
        return sha256(content).digest(), describe_error(error), None
    return sha256(content).digest(), None, pixels
