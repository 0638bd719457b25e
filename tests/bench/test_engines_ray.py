"""Ray: the same facts on actors, and what is said without Ray. The driver is always a process of its own.

Two nodes joined by address, and deaths, are in tests/hard/engine_kills.py.
"""

import pytest

from tests.hard.engine_kills import python, sigmazero
from tests.plans import NET, PLAN, assert_same, contents, run

pytestmark = pytest.mark.slow

pytest.importorskip("ray", reason="Ray is not installed: nothing is known of the engine 'ray' here")

WHERE = (
    NET
    + """
def build():
    import pathlib, sys
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        pathlib.Path({path!r}).write_text(sys.modules["ray"].util.get_node_ip_address())
    return Net(0)
"""
)


def test_actors_on_this_machine_give_the_facts_of_one_and_nobody_else_reaches_them(folder):
    (folder / "net.py").write_text(WHERE.format(path=str(folder / "address")))
    done = sigmazero(
        *("run", "plan.toml", "--store", "ray.db", "--trust-code", "--device", "cpu"),
        *("--engine", "ray", "--workers", 2),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    run(PLAN, "local.db")
    assert_same(contents("ray.db"), contents("local.db"))
    # Ray listens on every address, unless the node's own is this one.
    assert (folder / "address").read_text() == "127.0.0.1"


def test_without_ray_it_says_what_to_install(folder):
    (folder / "ray.py").write_text("raise ImportError('no Ray here')")
    done = sigmazero("run", "plan.toml", "--trust-code", "--engine", "ray", cwd=folder)
    assert done.returncode == 2
    assert "pip install 'sigmazero[ray]'; or use the engine 'processes'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


ADDRESSES = """
import sys
from sigmazero.cli import app
assert "ray" not in sys.modules, "Ray was imported before anybody asked for it"
for address in sys.argv[1:]:
    try:
        app(["run", "plan.toml", "--trust-code", "--engine", "ray", "--address", address])
    except SystemExit as end:
        assert end.code == 2, address
    else:
        raise AssertionError(address)
"""


def test_an_address_without_a_cluster_is_one_line_and_nothing_else_imports_ray(folder):
    """In one process for all, since each would import torch and Ray."""
    done = python("-c", ADDRESSES, "127.0.0.1:1", "somewhere", cwd=folder)
    assert done.returncode == 0, done.stderr
    nobody, none = done.stderr.strip().splitlines()
    assert "nobody answers at 127.0.0.1:1" in nobody
    assert "'somewhere' is no address" in none
