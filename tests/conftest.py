"""What tests share, and what keeps them from failing by chance."""

import os
import random
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.children import Children


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of our own."""
    words = "write the golden results of these attacks anew"
    parser.addoption("--update-golden", nargs="+", metavar="NAME", help=words)


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is read. The process that only hands tests out to others (-n 2) has no use for torch."""
    if config.getoption("numprocesses", None):
        return
    import torch

    sys.addaudithook(_stay_here)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # so begins what a script starts with &
        signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)  # the test processes share the cores
    if find_spec("hypothesis"):  # tests/gpu also runs where there is little more than torch
        from hypothesis import HealthCheck, settings

        # However long an example takes, and with no notes left in the checkout.
        usual = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
        settings.register_profile("same", usual, derandomize=True)  # the same examples each time
        # Drawn by --hypothesis-seed; without the word Hypothesis would repeat itself wherever CI is set.
        settings.register_profile("nightly", usual, max_examples=1000, derandomize=False)
        settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


LEAVING: list[str] = []  # the hosts beyond this machine that a test asked for


def _stay_here(event: str, given: tuple[Any, ...]) -> None:
    """Let no test leave this machine: it would fail wherever the network is slow, or absent."""
    if event in ("socket.connect", "socket.sendto") and isinstance(given[1], tuple):  # other sockets are files
        if event == "socket.connect" and given[0].type == socket.SOCK_DGRAM:  # this sends nothing
            return
        host = given[1][0]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = given[0]
    else:
        return
    name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    if name not in ("localhost", "::1", "0.0.0.0") and not name.startswith("127."):
        LEAVING.append(name)
        raise AssertionError(f"a test wants to reach {name}, beyond this machine; let it talk to a server of its own")


SLOW = re.compile(r"^pytestmark = .*pytest\.mark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files of which no test is asked for: that takes each process seconds."""
    asked = config.getoption("markexpr")
    if asked not in ("slow", "not slow") or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    unwanted = "pytest.mark.slow" not in text if asked == "slow" else SLOW.search(text)
    return True if unwanted else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest, or one process would wait for it in the end."""
    items.sort(key=lambda item: item.path.name != "test_site.py")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line each what was skipped and which known defects there are, by their reasons."""
    for outcome in ("skipped", "xfailed"):
        reports = terminalreporter.stats.get(outcome, [])
        if reports:
            reasons = Counter(_reason(report) for report in reports).most_common()
            told = "; ".join(f"{count} × {reason}" for reason, count in reasons)
            terminalreporter.write_line(f"{len(reports)} {outcome}: {told}")


def _reason(report: pytest.TestReport) -> str:
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
    return " ".join(said.removeprefix("Skipped: ").split()) or "no reason given"


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Whatever ran before in this process, a test draws the same numbers."""
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_module_of_another_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget what a test imported from its own folder: the next one may have a net.py too."""
    path, known = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    base = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(base):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _stayed_here() -> Iterator[None]:
    """Fail where a test wanted to leave this machine and the code made something else of the refusal."""
    yield
    asked, LEAVING[:] = LEAVING[:], []
    assert not asked, f"the test wanted to reach {', '.join(asked)}"


@pytest.fixture(scope="session")
def children() -> "Children":
    """Starts processes that a test may have killed."""
    from tests.children import Children

    return Children()


@pytest.fixture
def shared_data() -> Path:
    """The folder with real data and weights; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("SIGMAZERO_SHARED", Path(__file__).parents[2] / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: set SIGMAZERO_SHARED to run this test")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two networks in net.py, 24 images of shape 3×4×5 in mine.npz, and plan.toml."""
    import numpy as np
    import torch

    from tests.plans import NET, PLAN

    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "plan.toml").write_text(PLAN)
    images = torch.rand(24, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    weight = torch.randn(
        4, 60, generator=torch.Generator().manual_seed(0)
    )  # of net.py:build, which has all but one right
    labels = (images.flatten(1)[:, None] * weight).sum(2).argmax(1)
    labels[22] = (labels[22] + 1) % 4
    np.savez(tmp_path / "mine.npz", images=images.numpy(), labels=labels.numpy())
    monkeypatch.chdir(tmp_path)
    return tmp_path
