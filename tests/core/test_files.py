"""Files that appear whole or not at all, and the folders where models and data are looked for."""

import os
import re
import stat

import pytest

from sigmazero.core.files import cache, replacing, same_file, search, writable


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


def test_a_link_is_written_through(tmp_path):
    link, chain = tmp_path / "link.txt", tmp_path / "chain.txt"
    link.symlink_to("new/file.txt")  # which is not there yet
    chain.symlink_to(link)
    writable(link)
    for text, name in (("first", link), ("second", chain)):
        write(name, text)
        assert (tmp_path / "new/file.txt").read_text() == text
        assert link.is_symlink()
        assert chain.is_symlink()


def special(folder, kind):
    """Something that is no file, never the system's own: a mistake in the code under test would replace it."""
    path = folder / "special"
    if kind == "device":
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    if kind == "link":
        (folder / "link").symlink_to(path)
    return folder / "link" if kind == "link" else path


@pytest.mark.parametrize("kind", ["pipe", "device", "link", "loop", "folder"])
def test_what_is_no_file_is_refused_and_left(tmp_path, kind):
    path = special(tmp_path, kind)
    before = {each.name: (each.lstat().st_ino, each.lstat().st_mode) for each in tmp_path.iterdir()}
    for act in (writable, lambda path: write(path, "text")):
        with pytest.raises(OSError, match=re.escape(str(path))):
            act(path)
    assert {each.name: (each.lstat().st_ino, each.lstat().st_mode) for each in tmp_path.iterdir()} == before


def test_names_of_the_same_file(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    assert not same_file(one, other)
    assert same_file(one, tmp_path / "folder" / ".." / "one")
    one.touch()
    assert not same_file(one, other)
    other.hardlink_to(one)
    assert same_file(one, other)


def test_the_given_folder_comes_first_then_the_home_then_the_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("SIGMAZERO_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    folder = cache()
    assert folder == tmp_path / "xdg" / "sigmazero"  # where the platform has it, as platformdirs says
    assert search("models") == [folder / "models"]
    monkeypatch.setenv("SIGMAZERO_HOME", str(home := tmp_path / "mine"))
    assert search("data", tmp_path / "given") == [tmp_path / "given", home / "data", home, folder / "data"]
