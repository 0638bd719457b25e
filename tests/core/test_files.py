"""Files that appear whole or not at all, and the folders where models and data are looked for."""

import os
import re
import stat
from pathlib import Path, PurePath

import platformdirs
import pytest
from platformdirs import windows
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

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


@pytest.mark.parametrize(("point", "text"), [("file.written", "first"), ("file.replaced", "second")])
def test_a_killed_writer_leaves_the_old_file_or_the_new_one(tmp_path, children, point, text):
    path = tmp_path / "file.txt"
    write(path, "first")
    assert children.killed(point, write, path, "second")
    assert path.read_text() == text


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    file, link, chain = tmp_path / "elsewhere" / "file.txt", tmp_path / "link.txt", tmp_path / "chain.txt"
    link.symlink_to("elsewhere/file.txt")
    chain.symlink_to(link)
    for text, name in (("first", link), ("second", chain), ("third", file)):
        write(name, text)
        assert file.read_text() == text
        assert link.is_symlink()
        assert chain.is_symlink()
    assert [other.name for other in file.parent.iterdir()] == ["file.txt"]


def test_a_link_that_leads_nowhere_makes_its_file(tmp_path):
    link = tmp_path / "link.txt"
    link.symlink_to("new/file.txt")
    writable(link)
    write(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "new/file.txt").read_text() == "text"


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


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """An empty home folder, and no folder named by the environment."""
    for name in ("SIGMAZERO_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))


@pytest.mark.usefixtures("alone")
def test_the_given_folder_comes_first_then_the_home_then_the_cache(tmp_path, monkeypatch):
    folder = cache()
    assert search("models") == [folder / "models"]
    monkeypatch.setenv("SIGMAZERO_HOME", "~/mine")
    home = tmp_path / "mine"
    assert search("data", "~/given") == [tmp_path / "given", home / "data", home, folder / "data"]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("system", "tail"), [(Unix, ".cache/sigmazero"), (MacOS, "Library/Caches/sigmazero")])
def test_the_cache_is_in_the_folder_of_the_platform(system, tail, tmp_path, monkeypatch):
    def asked(name, **how):
        return system(name, **how).user_cache_path

    monkeypatch.setattr(platformdirs, "user_cache_path", asked)
    assert cache() == tmp_path / tail
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache() == tmp_path / "xdg" / "sigmazero"


@pytest.mark.usefixtures("alone")
def test_on_windows_neither_an_author_nor_a_folder_called_cache_is_added(monkeypatch):
    monkeypatch.setattr(windows, "get_win_folder", lambda _: r"C:\Users\me\AppData\Local")
    monkeypatch.setattr(
        platformdirs, "user_cache_path", lambda name, **how: Path(windows.Windows(name, **how).user_cache_dir)
    )
    folder = cache()
    assert PurePath(str(folder).replace("\\", "/")) == PurePath("C:/Users/me/AppData/Local/sigmazero")
