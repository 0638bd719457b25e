"""Ray: the same facts on actors. The driver is always a process of its own, since Ray has one cluster in each."""

import os
import subprocess
import sys

import pytest

from tests.plans import NET, PLAN, assert_same, contents, run

pytestmark = pytest.mark.slow

pytest.importorskip("ray", reason="Ray is not installed: nothing is known of the engine 'ray' here")

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with our modules. Ray's workers yield to other processes by default, and may then begin too late."""
    path = os.pathsep.join(filter(None, sys.path))
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0", **environment}
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=600)


# It says on which address it was used, and needs a module that lies beside it.
WHERE = (
    "import helper\n"
    + NET.replace("return (x", "helper.note({path!r}); return helper.one() * (x")
    + """
def build(): return Net(0)
"""
)
HELPER = """
import pathlib, sys

def one(): return 1.0

def note(path):
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        import ray
        if ray.get_runtime_context().get_actor_id():
            pathlib.Path(path).write_text(ray.util.get_node_ip_address())
"""


def test_actors_on_this_machine_give_the_facts_of_one_and_nobody_else_reaches_them(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    (folder / "helper.py").write_text(HELPER)
    (folder / "net.py").write_text(WHERE.replace("{path!r}", repr(str(folder / "address"))))
    (folder / "brief.toml").write_text(PLAN)
    done = python(
        *("-m", "sigmazero", "run", "brief.toml", "--store", "ray.db", "--trust-code", "--device", "cpu"),
        *("--engine", "ray", "--workers", "2"),
    )
    assert done.returncode == 0, done.stderr
    run(PLAN, "local.db")
    assert_same(contents("ray.db"), contents("local.db"))
    # Ray listens on every address, unless the node's own is this one.
    assert (folder / "address").read_text() == "127.0.0.1"


CLUSTER = """
import sys
from ray.cluster_utils import Cluster
from sigmazero.__main__ import main

if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    sys.argv[1:] = ["run", "brief.toml", "--store", "ray.db", "--trust-code", "--device", "cpu",
                    "--engine", "ray", "--workers", "2", "--address", cluster.address]
    try:
        main()
    finally:
        cluster.shutdown()
"""


def test_two_nodes_and_a_worker_that_is_killed_give_the_facts_of_one(folder):
    (folder / "brief.toml").write_text(PLAN)
    (folder / "cluster.py").write_text(CLUSTER)
    done = python("cluster.py", SIGMAZERO_WORKER_FAULTS="batch.done:2", **TOKEN)
    assert done.returncode == 0, done.stderr
    assert "its worker died" in done.stderr
    run(PLAN, "local.db")
    assert_same(contents("ray.db"), contents("local.db"))


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
    done = python("-c", ADDRESSES, "127.0.0.1:1", "somewhere")
    assert done.returncode == 0, done.stderr
    nobody, none = done.stderr.strip().splitlines()
    assert "127.0.0.1:1" in nobody
    assert "'somewhere'" in none
