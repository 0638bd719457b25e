"""Tables made to crash their reader, to fill its memory, or to do harm where they are shown: one line each."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from sigmazero.data import DataError, load
from sigmazero.data.tables import draft
from tests.data.test_hostile import said, zeros
from tests.data.test_tables import ARFF, CSV, put
from tests.hard.bounded import bounded

pytestmark = pytest.mark.slow

ODD = b"\x00\xff'\",\n\\{}@%=1\xc3"
PLAIN = 'label = "b"'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "an empty file"),
        (b"\n\n", "holds no line"),
        (b"a,b\n", "holds no rows under its header"),
        (b"a,b\n1,2\n3\n", "line 3 has 1 cells, and there are 2 columns; mend it"),
        (b"a,b\n1,2,3\n", "line 2 has 3 cells"),
        (b"a,a\n1,2\n", "two columns are called 'a'; rename one"),
        (b"a,\n1,2\n", "the name of column 2 is ''; a name has 1 to 200"),
        (b"a,=cmd|x\n1,2\n", "which is a formula to spreadsheets; rename it"),
        (b'a,b\n1,"2\n3,4\n', "line 2: unexpected end of data; mend its quotation marks"),
        (b'a,b\n1,"2"3\n', "line 2: ',' expected after '\"'; mend its quotation marks"),
        (b"a,b\n1,\xff\n", "byte 0xff is no UTF-8; save the table as UTF-8"),
        (b"a,b\n1,\x00\n", "line 2 holds a zero byte"),
        (b"a,b\nnan,1\n", "row 0, column 'a': 'nan' is no number"),
        (b"a,b\ninf,1\n", "row 0, column 'a': 'inf' is no number"),
        (b"a,b\n1,=1+1\n", "a word of column 'b' is '=1+1', which is a formula"),
        (b"a,b\n1,\x1b[31m\n", "a name has 1 to 200 visible characters"),
        (b"<!doctype html><html>", "a web page saved in place of the file"),
        (b"a," * 20_000 + b"b\n", "has 20001 columns, and at most 20000 are read"),
        (b"a,b\n1,2\n" + b"x" * (1 << 21), "line 3 has more than 1048576 characters; it is no table"),
        (b'a,b\n1,"' + b"x\n" * 500_000, "line 2: unexpected end of data"),
    ],
)
def test_csv(tmp_path: Path, text: bytes, words: str) -> None:
    assert words in said(put(tmp_path, text, PLAIN), tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("@relation x\n@attribute a numeric\n", "has no line @data; it is cut short"),
        ("@relation x\n@attribute a date\n@data\n", "line 2: a column of kind 'date' is not read"),
        ("hello\n", "line 1: 'hello' is no @relation, @attribute or @data"),
        ("@data\n1\n", "holds no line; its first line names the columns"),
        ("@attribute a numeric\n@attribute b {0,1}\n@data\n{0 1}\n", "line 4 is a sparse row"),
        ("@attribute a numeric\n@attribute b {0,1}\n@data\n1,'0\n", 'line 4: cannot be cut into cells at "\'0"'),
        ("@attribute a numeric\n@attribute b {0,1}\n@data\n1,'0'x\n", "line 4: cannot be cut into cells"),
        ("@attribute a numeric\n@attribute b {0,1}\n@data\n?,0\n", "row 0, column 'a': '?' is no number"),
        ("@attribute a numeric\n@attribute b {0,1}\n@data\n1,0,\n", "line 4 has 3 cells"),
    ],
)
def test_arff(tmp_path: Path, text: str, words: str) -> None:
    assert words in said(put(tmp_path, text, PLAIN, "own.arff"), tmp_path)


def test_a_quotation_bomb_is_cut_in_time_that_grows_with_its_length(tmp_path: Path) -> None:
    text = "@attribute a numeric\n@attribute b {0,1}\n@data\n1,'" + "\\\\" * 400_000 + "\n"
    assert "line 4: cannot be cut into cells" in said(put(tmp_path, text, PLAIN, "own.arff"), tmp_path)
    text = "@attribute a numeric\n@attribute b {0,1}\n@data\n1," + " " * 800_000 + "'\n"
    assert "line 4: cannot be cut into cells" in said(put(tmp_path, text, PLAIN, "own.arff"), tmp_path)


def test_a_packed_table_is_read_no_further_than_memory_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sigmazero.data.table.PIECE", 1 << 16)
    monkeypatch.setenv("SIGMAZERO_MAX_BYTES", "500000")
    packed = gzip.compress(b"a,b\n" + b"1,2\n" * 100_000, 1)
    (tmp_path / "own.csv.gz").write_bytes(packed)
    (tmp_path / "own.toml").write_text(PLAIN)
    assert "rows and more asks for 0.0 GB of memory and 0.0 GB are allowed" in said(tmp_path / "own.csv.gz", tmp_path)
    (tmp_path / "own.csv.gz").write_bytes(zeros(30 << 20, head=b"a,b\n1,2\n", gz=True))
    assert "line 3 has more than 1048576 characters" in said(tmp_path / "own.csv.gz", tmp_path)
    (tmp_path / "own.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 1000)[:-10])
    assert "cannot be read (Compressed file ended" in said(tmp_path / "own.csv.gz", tmp_path)


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow, parquet = (
        pytest.importorskip(name, reason="Parquet needs pyarrow") for name in ("pyarrow", "pyarrow.parquet")
    )
    path = tmp_path / "own.parquet"
    (tmp_path / "own.toml").write_text(PLAIN)
    parquet.write_table(arrow.table({"a": [[1], [2]], "b": ["x", "y"]}), path)
    with pytest.raises(DataError, match=r"column 'a' is of kind list<.*>, neither numbers nor texts; leave it out"):
        load(path)
    whole = path.read_bytes()
    for text in (b"PAR1", whole[:50], b"x" * 100, whole[:-20] + bytes(20)):
        path.write_bytes(text)
        with pytest.raises(DataError, match=r"own.parquet: cannot be read \([^\n]+\); it is damaged, get it again"):
            load(path)
    long = arrow.array(["x" * 1000] * 100_000).dictionary_encode()
    parquet.write_table(arrow.table({"a": range(100_000), "b": long}), path)
    with pytest.raises(DataError, match="a name has 1 to 200 visible characters"):  # 100 MB that are one text
        load(path)
    monkeypatch.setenv("SIGMAZERO_MAX_BYTES", "10000")
    with pytest.raises(DataError, match=r"100000 rows asks for 0.0 GB of memory"):
        load(path)


@pytest.mark.parametrize(("name", "text"), [("own.csv", CSV), ("own.arff", ARFF)])
def test_no_damage_is_more_than_one_line(tmp_path: Path, name: str, text: str) -> None:
    """Bytes changed, cut and doubled: a table, or one line."""
    noise = random.Random(0)
    (tmp_path / "drafts").mkdir()
    for _ in range(150):
        data = bytearray(text.encode())
        for _ in range(noise.randint(1, 4)):
            at = noise.randrange(len(data))
            data[at : at + noise.randint(0, 3)] = bytes(
                noise.choices(b"\x00\xff'\",\n\\{}@%=1\xc3", k=noise.randint(0, 3))
            )
        path = put(tmp_path / "drafts", bytes(data), None, name)
        said = ""
        try:
            (tmp_path / "own.toml").write_text(draft(path))
            load(put(tmp_path, bytes(data), None, name))
        except DataError as error:
            said = str(error)
        assert "\n" not in said


def test_texts_that_repeat_are_held_once(tmp_path: Path) -> None:
    """A hundred thousand rows of text in 20 MB, where a list of their cells would take 60."""
    rows = 100_000
    put(tmp_path, b"a,c,b\n" + b"".join(b"%d,some words that repeat,x\n" % (k % 1000) for k in range(rows)), None)
    (tmp_path / "own.toml").write_text('label = "b"\ncategories = ["c"]')
    assert bounded(lambda: len(load(tmp_path / "own.csv", limit=10)), room=20 << 20) == 10
