"""Ray: the same facts on actors and on two nodes, whatever dies. The driver is always a process of its own."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import ended
from tests.plans import NET, PLAN, assert_same, contents, run

pytest.importorskip("ray", reason="Ray is not installed: nothing is known of the engine 'ray' here")

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
BRIEF = PLAN.replace("steps = 30", "steps = 5").replace(', "net.py:other"', "")
# On the second node it kills, once, what it is told to: the worker itself, or the node. The first one waits for that. A
# worker whose node is dead may live on for a second: it must not finish its unit, and stays here until Ray ends it.
DEADLY = (
    NET
    + """
class Deadly(Net):
    def forward(self, x):
        import os, pathlib, signal, time
        mark, where = pathlib.Path({mark!r}), os.environ.get("WHERE")
        if x.requires_grad and where == "second" and mark.exists():
            mark.rename(mark.with_name(f"was-{{os.getpid()}}"))
            os.kill({victim}, 9)
            while True:
                signal.pause()
        while x.requires_grad and where == "head" and mark.exists():
            time.sleep(0.01)
        return super().forward(x)

def deadly(): return Deadly(0)
"""
)


def sigmazero(*arguments, cwd: Path, **environment: str):
    """The command line, in a process of its own."""
    command = [sys.executable, "-m", "sigmazero", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300)


class Node:
    """A node of a cluster, as `ray start` makes it; it ends with the process."""

    def __init__(self, folder: Path, where: str, *options: str) -> None:
        folder.mkdir()
        env = {**os.environ, **TOKEN, "WHERE": where, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", *options]
        self.process = subprocess.Popen(
            [*command, "--object-store-memory=100000000", "--disable-usage-stats"],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                return
        pytest.fail(f"the node did not start: {''.join(said)}")

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a cluster of one node, and what adds another to it."""
    folder = tmp_path_factory.mktemp("nodes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = [Node(folder / "head", "head", "--head", f"--port={port}", "--include-dashboard=false")]

    def add() -> Node:
        nodes.append(Node(folder / f"{len(nodes)}", "second", f"--address=127.0.0.1:{port}"))
        return nodes[-1]

    yield f"127.0.0.1:{port}", add
    for node in reversed(nodes):
        node.end()


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


@pytest.mark.parametrize("victim", ["os.getpid()", "os.getppid()"], ids=["worker", "node"])
def test_two_nodes_joined_by_address_and_one_that_dies(folder, cluster, victim):
    """Neither node has the plan's files: they travel. Then a worker, or a whole node, dies in the middle of a unit."""
    address, add = cluster
    second = add()
    (folder / "net.py").write_text(DEADLY.format(mark=str(folder / "mark"), victim=victim))
    (folder / "mark").touch()
    text = BRIEF.replace("net.py:build", "net.py:deadly")
    (folder / "brief.toml").write_text(text)
    done = sigmazero(
        *("run", "brief.toml", "--store", "ray.db", "--trust-code", "--device", "cpu"),
        *("--engine", "ray", "--address", address, "--workers", 2),
        cwd=folder,
        **TOKEN,
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / "mark").exists(), "the second node had nothing to do"
    (was,) = folder.glob("was-*")
    assert ended(int(was.name.removeprefix("was-"))), "Ray let a worker live on without its node"
    assert re.search(r"its worker died: .* they are run again", done.stderr)
    run(text, "local.db")
    assert_same(contents("ray.db"), contents("local.db"))
    second.end()


def test_without_ray_it_says_what_to_install(folder):
    (folder / "ray.py").write_text("raise ImportError('no Ray here')")
    done = sigmazero("run", "plan.toml", "--trust-code", "--engine", "ray", cwd=folder)
    assert done.returncode == 2
    assert "pip install 'sigmazero[ray]'; or use the engine 'processes'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("address", "message"),
    [("127.0.0.1:1", "nobody answers at 127.0.0.1:1"), ("somewhere", "'somewhere' is no address")],
)
def test_an_address_without_a_cluster_is_one_line(folder, address, message):
    done = sigmazero("run", "plan.toml", "--trust-code", "--engine", "ray", "--address", address, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_nothing_else_imports_ray():
    code = "import sigmazero.cli.commands.run, sys; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
