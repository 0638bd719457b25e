"""Where models and data are looked for, on every platform."""

from pathlib import Path, PurePath

import platformdirs
import pytest
from platformdirs import windows
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from sigmazero.core.folders import cache, search


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """An empty home folder, and no folder named by the environment."""
    for name in ("SIGMAZERO_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))


def test_the_given_folder_comes_first_then_the_home_then_the_cache(tmp_path, monkeypatch):
    folder = cache()
    assert search("models") == [folder / "models"]
    monkeypatch.setenv("SIGMAZERO_HOME", "~/mine")
    home = tmp_path / "mine"
    assert search("data", "~/given") == [tmp_path / "given", home / "data", home, folder / "data"]


@pytest.mark.parametrize(("system", "tail"), [(Unix, ".cache/sigmazero"), (MacOS, "Library/Caches/sigmazero")])
def test_the_cache_is_in_the_folder_of_the_platform(system, tail, tmp_path, monkeypatch):
    def asked(name, **how):
        return system(name, **how).user_cache_path

    monkeypatch.setattr(platformdirs, "user_cache_path", asked)
    assert cache() == tmp_path / tail
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache() == tmp_path / "xdg" / "sigmazero"


def test_on_windows_neither_an_author_nor_a_folder_called_cache_is_added(monkeypatch):
    monkeypatch.setattr(windows, "get_win_folder", lambda _: r"C:\Users\me\AppData\Local")
    monkeypatch.setattr(
        platformdirs, "user_cache_path", lambda name, **how: Path(windows.Windows(name, **how).user_cache_dir)
    )
    folder = cache()
    assert PurePath(str(folder).replace("\\", "/")) == PurePath("C:/Users/me/AppData/Local/sigmazero")
