"""The one reader of TOML files: errors name the file, the line and the value."""

import pytest
from pydantic import Field

from sigmazero.core import toml
from sigmazero.core.toml import Count, Names, Number, Table, TomlError


class Inner(Table):
    count: Count = 1
    share: Number = 0.0


class Outer(Table):
    names: Names = Field(default=[])
    inner: dict[str, Inner] = Field(default={})
    each: list[Inner] = Field(default=[])


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("count = 1", 1, ["'count'", "allowed: names, inner, each"]),
        ("\n[inner.a]\ncuont = 2", 3, ["'cuont'", "did you mean 'count'"]),
        ("[[each]]\n[[each]]\ncount = 0", 3, ["count = 0"]),
        ("[[each]]\ncount = true", 2, ["count = True"]),
        ("[[each]]\nshare = inf", 2, ["share = inf"]),
        ("names = ['a', 'b', 'a']", 1, ["'a' twice"]),
        ("names = [3]", 1, ["3"]),
        ("each = 3", 1, ["each = 3"]),
        ("names = ['a']\nnames = = 'b'", 2, ["not TOML"]),
    ],
)
def test_errors_name_file_line_and_value(text, line, words):
    with pytest.raises(TomlError) as caught:
        toml.parse(text, Outer, "my.toml")
    assert str(caught.value).startswith(f"my.toml:{line}: ")
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_single_name_needs_no_brackets_and_whole_numbers_are_numbers():
    found = toml.parse("names = 'a'\n[inner.x]\nshare = 1", Outer, "my.toml")
    assert (found.names, found.inner["x"].share) == (["a"], 1.0)


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
