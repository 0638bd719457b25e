"""What workers cost and bring: rows per second and CPU seconds per row, against independent runs of the same work.

    python -m benchmarks.engines            two workers on a core each, against two local runs side by side; the store
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
from benchmarks.store import made_up
from sigmazero.bench.cells import Loader, expand
from sigmazero.bench.drive import HELD
from sigmazero.bench.engines.base import Message, Ready
from sigmazero.bench.engines.processes import Processes
from sigmazero.bench.plan import parse_plan
from sigmazero.bench.run import execute
from sigmazero.bench.trust import EVERYTHING
from sigmazero.store.batches import pack_facts
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store

NETS = """
import torch
from sigmazero.models.architectures.preact_resnet import PreActResNet18
from sigmazero.models.architectures.smallcnn import SmallCNN

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


class Watched(Processes):
    """Processes on a core each, if there are as many; knows when all were ready, and what they spent."""

    def __init__(self, loader: Loader, workers: int) -> None:
        super().__init__(loader, workers)
        self.began = self.spent = 0.0

    def open(self, worker: int) -> None:
        super().open(worker)
        cores = sorted(os.sched_getaffinity(0))
        if self.size <= len(cores):
            os.sched_setaffinity(self._workers[worker][0].pid, {cores[worker]})

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        said = super().wait(seconds)
        if any(isinstance(message, Ready) for _, message in said):
            self.began = time.perf_counter()
        return said

    def close(self) -> None:
        for process, _ in self._workers.values():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            self.spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        super().close()


def timed(plan: str, store: str, device: str, workers: int | None) -> dict[str, float]:
    """Run a plan in this process or on workers; of these the clock starts when the last one is ready."""
    loader = Loader(device, trust=EVERYTHING)
    with Store(store, write=True) as opened:
        cells, _ = expand(parse_plan(plan).questions, loader)
        engine = None if workers is None else Watched(loader, workers)
        began, spent = time.perf_counter(), time.process_time()
        done = execute(cells, opened, loader, engine=engine)
        ended, spent = time.perf_counter(), time.process_time() - spent
    assert not done.failed, done.failed
    if engine is not None:
        began, spent = engine.began, spent + engine.spent
    return {"rows": done.rows, "seconds": ended - began, "cpu": spent, "writing": done.writing}


def side_by_side(rows: int, steps: int, rounds: int, out: Path | None) -> None:
    """Two workers pinned to a core each, and two local runs of half the rows each, in turn."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    fixed: dict[str, Any] = {"name": "small", "batch": 16, "attack": "sigma-zero", "steps": steps}
    prepare(Path.cwd(), "small", rows, "cpu")
    found: dict[str, list[tuple[float, float]]] = {"processes": [], "local": []}
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
                found[way].append((max(each["seconds"] for each in took), sum(each["cpu"] for each in took) / rows))
    medians = {
        way: [statistics.median(values) for values in zip(*figures, strict=True)] for way, figures in found.items()
    }
    (fast, cost), (alone, cost_alone) = medians["processes"], medians["local"]
    line = {
        "rows": rows,
        "steps": steps,
        "rounds": rounds,
        "processes_rows_s": rows / fast,
        "local_rows_s": rows / alone,
    }
    line |= {"speed_ratio": alone / fast, "processes_cpu_s": cost, "local_cpu_s": cost_alone}
    say(line | {"cpu_ratio": cost / cost_alone, "torch": torch.__version__}, out)


def one(way: str, plan: str, store: str) -> None:
    """A run in a process of its own, as `side_by_side` starts it; the figures go into a file."""
    torch.set_num_threads(1)
    done = timed(plan, store, "cpu", 2 if way == "processes" else None)
    Path(f"{store}.json").write_text(json.dumps(done))


def storing(per_second: int, seconds: float, out: Path | None) -> None:
    """The share of a driver's time that goes into the store, at so many facts a second in batches of various sizes."""
    for size in (8, 64, 512):
        count = max(int(per_second * seconds) // size, 1)
        more: dict[str, Any] = {"dataset": "d", "parameters": {}, "version": 1, "steps": 1, "unit": "feature"}
        more |= {"goal": "untargeted", "budget": None, "seed": 0, "precision": "fp32", "data_hash": "", "attack": "a"}
        info = CellInfo(key="k" * 64, model="m", rows=count * size, model_sha256="", **more)
        facts, together = made_up(size, 1), max(int(HELD * per_second / size), 1)
        packed = pack_facts(facts)  # as workers do
        with Store(Path.cwd() / f"{size}.db", write=True) as store:
            store.register([info])
            run, began, busy = store.begin({}), time.perf_counter(), time.process_time()
            for start in range(0, count, together):
                with store.together():
                    for place in range(start, min(start + together, count)):
                        store.append(info.key, place * size, facts, run=run, packed=packed)
            spent, busy = time.perf_counter() - began, time.process_time() - busy
        whole = count * size / per_second
        line = {"batch": size, "facts": count * size, "facts_per_second": per_second, "together_s": HELD}
        line |= {"writing_percent": 100 * spent / whole, "writing_cpu_percent": 100 * busy / whole}
        say(line | {"saturates_at": count * size / spent}, out)


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
            storing(1000, 20.0, out)
            side_by_side(args.rows, args.steps, args.rounds, out)


if __name__ == "__main__":
    main()
