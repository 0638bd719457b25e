"""Measure what workers bring: rows per second, against independent runs of the same work.

    python -m benchmarks.engines            two workers, against two local runs side by side
    python -m benchmarks.engines --gpu      1, 2 and 4 workers that share a GPU, on a small and on a larger network

Rounds of both ways take turns, since machines are noisy; compare medians. The networks have random weights, which
changes nothing but the answers.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.networks import say
from sigmazero.bench.cells import expand
from sigmazero.bench.loader import EVERYTHING, Loader
from sigmazero.bench.plan_file import parse_plan
from sigmazero.bench.run import execute
from sigmazero.bench.workers import Processes
from sigmazero.store.store import Store

NETS = """
import torch
from sigmazero.models.architectures.preact_resnet import PreActResNet18
from sigmazero.models.architectures.small import SmallCNN

def small():
    torch.manual_seed(0)
    return SmallCNN()

def resnet():
    torch.manual_seed(0)
    return PreActResNet18()
"""
PLAN = """
batch_size = {batch}
[data.rows]
source = "{name}.npz"
{rows}
[[grid]]
models = ["nets.py:{name}"]
data = ["rows"]
attacks = ["{attack}"]
steps = {steps}
"""
SHAPES = {"small": (1, 28, 28), "resnet": (3, 32, 32)}


def prepare(folder: Path, name: str, rows: int, device: str) -> None:
    """Rows that the network has right, so that each needs a search."""
    (folder / "nets.py").write_text(NETS)
    images = np.random.default_rng(0).random((rows, *SHAPES[name]), dtype=np.float32)
    loader = Loader(device, trust=EVERYTHING)
    question = parse_plan(PLAN.format(name=name, rows="", batch=64, attack="fmn", steps=1)).questions[0]
    network = loader.model(question.model)
    with torch.no_grad():
        parts = [network(part.to(device)).argmax(1).cpu() for part in torch.from_numpy(images).split(256)]
    np.savez(folder / f"{name}.npz", images=images, labels=torch.cat(parts).numpy())


def timed(plan: str, store: str, device: str, workers: int | None) -> dict[str, float]:
    """Run a plan in this process or on workers, with the time that they need to start."""
    loader = Loader(device, trust=EVERYTHING)
    with Store(store, write=True) as opened:
        cells, _ = expand(parse_plan(plan).questions, loader)
        engine = None if workers is None else Processes(loader, workers)
        began = time.perf_counter()
        done = execute(cells, opened, loader, engine=engine)
        seconds = time.perf_counter() - began
    assert not done.failed, done.failed
    return {"rows": done.rows, "seconds": seconds}


def side_by_side(rows: int, steps: int, rounds: int, out: Path | None) -> None:
    """Run two workers on two cores, and two local runs of half the rows each on a core each, in turn."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    fixed: dict[str, Any] = {"name": "small", "batch": 16, "attack": "sigma-zero", "steps": steps}
    prepare(Path.cwd(), "small", rows, "cpu")
    found: dict[str, list[float]] = {"processes": [], "local": []}
    for turn in range(rounds + 1):  # the first round loads libraries and does not count
        for way in found:
            ways = ["processes"] if way == "processes" else ["first", "second"]
            spans = {"processes": "", "first": f'rows = "0:{rows // 2}"', "second": f'rows = "{rows // 2}:{rows}"'}
            plans = [PLAN.format(rows=spans[one], **fixed) for one in ways]
            children = [
                subprocess.Popen([sys.executable, "-m", "benchmarks.engines", "--one", one, plan, f"{one}-{turn}.db"])
                for one, plan in zip(ways, plans, strict=True)
            ]
            for place, child in enumerate(children):
                os.sched_setaffinity(child.pid, cores if way == "processes" else cores[place : place + 1])
            assert [child.wait() for child in children] == [0] * len(children)
            took = [json.loads(Path(f"{one}-{turn}.db.json").read_text()) for one in ways]
            if turn:
                found[way].append(max(each["seconds"] for each in took))
    fast, alone = (statistics.median(found[way]) for way in ("processes", "local"))
    line = {
        "rows": rows,
        "steps": steps,
        "rounds": rounds,
        "processes_rows_s": rows / fast,
        "local_rows_s": rows / alone,
    }
    say(line | {"speed_ratio": alone / fast, "torch": torch.__version__}, out)


def one(way: str, plan: str, store: str) -> None:
    """A run in a process of its own, as `side_by_side` starts it; the figures go into a file."""
    torch.set_num_threads(1)
    done = timed(plan, store, "cpu", 2 if way == "processes" else None)
    Path(f"{store}.json").write_text(json.dumps(done))


def sharing(names: list[str], rounds: int, budget: float, out: Path | None) -> None:
    """Workers that share a GPU: rows per second of 1, 2 and 4."""
    began = time.perf_counter()
    for name in names:
        rows, batch, steps = {"small": (4096, 64, 300), "resnet": (1024, 64, 100)}[name]
        prepare(Path.cwd(), name, rows, "cuda")
        plan = PLAN.format(name=name, rows="", batch=batch, attack="sigma-zero", steps=steps)
        for turn in range(rounds):
            for workers in (1, 2, 4):
                if time.perf_counter() - began > budget:
                    return
                done = timed(plan, f"{name}-{workers}-{turn}.db", "cuda", workers)
                line = {"network": name, "workers": workers, "rows": rows, "batch": batch, "steps": steps, **done}
                line |= {"rows_s": rows / done["seconds"], "device": torch.cuda.get_device_name()}
                say(line | {"torch": torch.__version__}, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="workers that share a GPU, instead of cores")
    parser.add_argument("--networks", nargs="+", choices=list(SHAPES), default=list(SHAPES), help="on a GPU, in turn")
    parser.add_argument("--rows", type=int, default=384)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=150.0, help="seconds after which no other run on a GPU begins")
    parser.add_argument("--out", type=Path, help="append the lines to this JSON-lines file")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(*args.one)
        return
    out = None if args.out is None else args.out.absolute()
    # The benchmark starts itself again from another folder, and must be found there.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if args.gpu:
            sharing(args.networks, args.rounds, args.budget, out)
        else:
            side_by_side(args.rows, args.steps, args.rounds, out)


if __name__ == "__main__":
    main()
