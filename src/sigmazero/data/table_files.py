"""Readers of table files: CSV and ARFF, plain or packed with gzip, and Parquet. Each gives a header and rows of texts.

A file is read as a stream, line by line; no line or name may be longer than the limits below.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, cast

from sigmazero.core.extras import require
from sigmazero.core.text import harmless, one_line, shown
from sigmazero.data.errors import DataError, MissingData
from sigmazero.data.source import LONGEST, afford, refuse_disguise

ENDINGS = (".csv", ".csv.gz", ".arff", ".arff.gz", ".parquet")
LINE = 1 << 20  # characters
WIDTH = 20_000  # columns

CellRows = Iterator[tuple[int, list[str]]]
"""Rows of cells, each with a number that a person finds it by."""


def is_table(name: str | Path) -> bool:
    """Whether a name is that of a table file."""
    return str(name).lower().endswith(ENDINGS)


@contextmanager
def opened(path: Path) -> Iterator[tuple[list[str], CellRows, str]]:
    """The names of a table's columns, its rows, and what the numbers of the rows count: lines, or rows."""
    if not path.is_file():
        raise MissingData(f"{path}: no such file; check the path")
    with path.open("rb") as file:
        head = file.read(64)
        refuse_disguise(head, path)
        if path.name.lower().endswith(".parquet"):
            with _readable(path):
                yield *_parquet(path), "row"
            return
        file.seek(0)
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if head[:2] == b"\x1f\x8b" else file
        arff = path.name.lower().removesuffix(".gz").endswith(".arff")
        with _readable(path), closing(TextIOWrapper(stream, encoding="utf-8-sig", newline="")) as text:
            yield *(_arff(text, path) if arff else _csv(text, path)), "line"


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (DataError, ImportError):
        raise
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.object[error.start]:#04x} is no UTF-8; save the table as UTF-8") from None
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        raise DataError(f"{path}: cannot be read ({one_line(error)}); it is damaged, get it again") from error


def _lines(text: TextIOWrapper, path: Path) -> Iterator[str]:
    number = 0
    while line := text.readline(LINE + 1):
        number += 1
        if len(line) > LINE:
            raise DataError(f"{path}: line {number} has more than {LINE} characters; it is no table")
        if "\0" in line:
            raise DataError(f"{path}: line {number} holds a zero byte; it is no text, save the table as UTF-8")
        yield line


def _csv(text: TextIOWrapper, path: Path) -> tuple[list[str], CellRows]:
    def rows() -> CellRows:
        for number, line in enumerate(_lines(text, path), 1):
            if line.strip():
                try:  # a line at a time: a quotation that never ends would take the rest of the file into one cell
                    yield number, next(csv.reader([line], strict=True, skipinitialspace=True))
                except csv.Error as error:
                    raise DataError(f"{path}: line {number}: {one_line(error)}; mend its quotation marks") from None

    found = rows()
    _, header = next(found, (0, []))
    return _header(header, path), found


def _header(names: list[str], path: Path) -> list[str]:
    names = [name.strip() for name in names]
    if not names:
        raise DataError(f"{path}: holds no line; its first line names the columns")
    if len(names) > WIDTH:
        raise DataError(f"{path}: has {len(names)} columns, and at most {WIDTH} are read; leave some out")
    for place, name in enumerate(names):
        check_name(name, f"{path}: the name of column {place + 1}")
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise DataError(f"{path}: two columns are called {twice!r}; rename one of them")
    return names


def check_name(name: str, where: str) -> None:
    """Refuse a name that could not be shown, or that a spreadsheet would run."""
    if not name or len(name) > LONGEST or not name.isprintable():
        raise DataError(f"{where} is {shown(name)!r}; a name has 1 to {LONGEST} visible characters, rename it")
    if len(name) > 1 and harmless(name) != name:
        raise DataError(f"{where} is {shown(name)!r}, which is a formula to spreadsheets; rename it")


_DECLARATION = re.compile(r"""@attribute\s+(?:'([^']*)'|"([^"]*)"|(\S+))\s+(.+)""", re.IGNORECASE)
# Possessive: what was read is never read again in another way, so that no line takes more time than its length.
_CELL = re.compile(r"""\s*+(?:'((?:[^'\\]|\\.)*+)'|"((?:[^"\\]|\\.)*+)"|([^,'"]*+))\s*+(,|$)""")
_NUMBERS = ("numeric", "real", "integer", "string")


def _arff(text: TextIOWrapper, path: Path) -> tuple[list[str], CellRows]:
    lines = ((number, line.strip()) for number, line in enumerate(_lines(text, path), 1))
    said = ((number, line) for number, line in lines if line and not line.startswith("%"))
    names: list[str] = []
    for number, line in said:
        word = line.split(maxsplit=1)[0].lower()
        if word == "@data":
            return _header(names, path), _arff_rows(said, path)
        if word == "@attribute" and (found := _DECLARATION.fullmatch(line)):
            kind = found[4].strip().lower()
            if not kind.startswith("{") and kind.split()[0] not in _NUMBERS:
                raise DataError(f"{path}: line {number}: a column of kind {shown(kind)!r} is not read; leave it out")
            names.append(found[1] or found[2] or found[3] or "")
        elif word != "@relation":
            raise DataError(f"{path}: line {number}: {shown(line)!r} is no @relation, @attribute or @data; mend it")
    raise DataError(f"{path}: has no line @data; it is cut short, or no ARFF file")


def _arff_rows(lines: Iterable[tuple[int, str]], path: Path) -> CellRows:
    for number, line in lines:
        if line.startswith("{"):
            raise DataError(f"{path}: line {number} is a sparse row; save the table with a value in every cell")
        yield number, line.split(",") if not set(line) & set("'\"") else _quoted(line, f"{path}: line {number}")


def _quoted(line: str, where: str) -> list[str]:
    cells, at = [], 0
    while True:
        found = _CELL.match(line, at)
        if not found:
            raise DataError(
                f"{where}: cannot be cut into cells at {shown(line[at : at + 20])!r}; mend its quotation marks"
            )
        text = next(part for part in (*found.group(1, 2, 3), "") if part is not None)
        cells.append(re.sub(r"\\(.)", r"\1", text))
        at = found.end()
        if not found[4]:
            return cells


def _parquet(path: Path) -> tuple[list[str], CellRows]:
    library: Any = require("pyarrow.parquet", "parquet", f"the table {path.name}", ", or save it as CSV")
    kinds: Any = require("pyarrow.types", "parquet", f"the table {path.name}")
    texts = []
    with library.ParquetFile(path) as file:
        names = _header(list(file.schema_arrow.names), path)
        for name, kind in zip(names, file.schema_arrow.types, strict=True):
            value = kind.value_type if kinds.is_dictionary(kind) else kind
            if kinds.is_string(value) or kinds.is_large_string(value):
                texts.append(name)
            elif not (kinds.is_integer(value) or kinds.is_floating(value) or kinds.is_boolean(value)):
                raise DataError(f"{path}: column {name!r} is of kind {value}, neither numbers nor texts; leave it out")
        unpacked = sum(file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups))
        afford(unpacked, f"{path}: {file.metadata.num_rows} rows")

    def rows() -> CellRows:
        number = 0
        with library.ParquetFile(path, read_dictionary=texts) as file:  # a text that repeats is held once
            for batch in file.iter_batches(batch_size=max(1, LINE // len(names))):
                columns = [_column(column) for column in batch]
                for cells in zip(*columns, strict=True):
                    yield number, list(cells)
                    number += 1

    return names, rows()


def _column(column: Any) -> list[str]:
    """A Parquet column as CSV would have it; numbers keep every digit."""
    coded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    texts = [str(int(value) if isinstance(value, bool) else value) for value in coded.dictionary.to_pylist()]
    return ["" if code is None else texts[code] for code in coded.indices.to_pylist()]
