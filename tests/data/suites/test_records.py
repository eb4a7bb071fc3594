import gzip
from pathlib import Path

import pytest

from layerwise.data.suites.records import FileRecord, below, read_records
from layerwise.errors import DataError


def written(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_json_lines_keep_their_line_numbers(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, '{"a": "x"}\n\n{"a": "y"}\n')
    assert read_records(path) == (FileRecord({"a": "x"}, str(path), 1), FileRecord({"a": "y"}, str(path), 3))


@pytest.mark.parametrize(("name", "mark"), [("rows.csv", ","), ("rows.tsv", "\t"), ("rows.csv.gz", ",")])
def test_tables_have_a_header(tmp_path: Path, name: str, mark: str) -> None:
    path = written(tmp_path / name, f'a{mark}b\n"x\ny"{mark}z\n1{mark}2\n')
    rows = read_records(path)
    assert [dict(row.columns) for row in rows] == [{"a": "x\ny", "b": "z"}, {"a": "1", "b": "2"}]
    assert [row.line for row in rows] == [3, 4]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("empty.jsonl", "", "holds no row"),
        ("empty.csv", "a,b\n", "holds no row"),
        ("empty.tsv", "", "holds no row"),
        ("bad.jsonl", '{"a": 1}\n{"a": \n', "bad.jsonl, line 2: it is not JSON"),
        ("list.jsonl", "[1]\n", "line 1: a list, not an object"),
        ("unequal.csv", "a,b\n1,2\n1,2,3\n", "line 3: 3 columns where the header has 2 (a, b)"),
        ("twice.csv", "a,a\n1,2\n", "the column 'a' is there twice"),
        ("quotes.csv", 'a,b\n"x" y,2\n', "line 2"),
        ("rows.parquet", "", "no table that can be read"),
    ],
)
def test_what_is_wrong_is_said_with_its_location(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(DataError) as refused:
        read_records(path)
    assert message in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_records(tmp_path / "none.jsonl")
    broken = tmp_path / "cut.jsonl.gz"
    broken.write_bytes(gzip.compress(b'{"a": "x"}\n' * 1000)[:30])
    with pytest.raises(DataError, match="is not a whole gzip file"):
        read_records(broken)
    latin = tmp_path / "latin.csv"
    latin.write_bytes(b"a,b\n\xe9,2\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_records(latin)


def test_a_missing_column_is_answered_with_near_ones() -> None:
    row = FileRecord({"sentence_goood": "x", "count": 3}, "f.jsonl", 7)
    with pytest.raises(DataError, match=r"f.jsonl, line 7: there is no column 'sentence_good'; did you mean"):
        row.text("sentence_good")
    with pytest.raises(DataError, match="column 'count' holds 3; it must hold text"):
        row.text("count")


def test_links_are_followed_and_circles_end(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "inside").mkdir(parents=True)
    (tmp_path / "elsewhere" / "inside" / "b.jsonl").touch()
    data = tmp_path / "data"
    (data / "z").mkdir(parents=True)
    (data / "z" / "a.jsonl").touch()
    (data / "linked").symlink_to(tmp_path / "elsewhere")
    (data / "z" / "above").symlink_to(data)
    names = [path.relative_to(data).as_posix() for path in below(data)]
    assert names == ["linked", "z", "linked/inside", "linked/inside/b.jsonl", "z/a.jsonl", "z/above"]
