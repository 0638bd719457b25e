"""Files that appear whole or not at all."""

import pytest

from sigmazero.core.files import replacing


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with replacing(path) as part:
        part.write_text("first")
        assert not path.exists()
    assert path.read_text() == "first"
    with pytest.raises(UnicodeEncodeError), replacing(path) as part, part.open("w", encoding="ascii") as file:
        file.write("second, and then \N{GREEK SMALL LETTER SIGMA}")
    assert path.read_text() == "first"
    assert [other.name for other in path.parent.iterdir()] == ["file.txt"]


def write(path, text):
    with replacing(path) as part:
        part.write_text(text)


@pytest.mark.parametrize(("point", "text"), [("file.written", "first"), ("file.replaced", "second")])
def test_a_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path, children, point, text):
    path = tmp_path / "file.txt"
    write(path, "first")
    assert children.killed(point, write, path, "second")
    assert path.read_text() == text
