"""Every test here sees empty home and cache folders, and makes the files it needs."""

import pytest


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    monkeypatch.delenv("SIGMAZERO_HOME", raising=False)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
