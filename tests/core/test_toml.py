"""The one reader of TOML files: errors name the file, the line and the value."""

import pytest

from sigmazero.core import toml
from sigmazero.core.toml import TomlError


def test_lines_see_through_values_over_several_lines():
    text = (
        'a = [\n "x = 1", # ]\n]\nt = """\nb = 2\n[c]\n"""\nb = 3\n[c."d e"]\nf.g = { h = 1 }\n[[k]]\n[[k]]\n[k.l]\n'
        "m=1\nn = [\n [3],\n]\no = 1"
    )
    for path, line in {
        ("b",): 8,
        ("t",): 4,
        ("c", "d e", "f", "g", "h"): 10,
        ("k", 1, "l", "m"): 14,
        ("a", 0): 1,
        ("k", 1, "l", "o"): 18,
        ("nothing",): 1,
    }.items():
        assert toml.line_of(text, path) == line, path
        assert toml.line_of(text.replace("\n", "\r\n"), path) == line, path


def test_files_that_are_no_text_or_nested_too_deep(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(TomlError, match=r"x\.toml: not text in UTF-8"):
        toml.read(tmp_path / "x.toml")
    with pytest.raises(TomlError, match=r"my\.toml"):
        toml.load(f"a = {'[' * 5000}{']' * 5000}", "my.toml")
    with pytest.raises(TomlError, match=r"my\.toml"):
        toml.load(f"a = {'9' * 5000}", "my.toml")
