"""What sigmazero adds to `import torch`: seconds until a first small attack has run, and how that compares with torch.

    python -m benchmarks.imports

Every round is a process of its own. Both are timed in it, so that their ratio says something on a noisy machine too.
Seconds are those of the processor. Most of a first run is torch's own: it loads sympy at the first gradient.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.networks import say

FIRST = """
import json, sys, time
marks = [time.process_time()]
import torch
marks.append(time.process_time())
import sigmazero as sz
attack = sz.get("sigma-zero", steps=5)
marks.append(time.process_time())
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
x = torch.rand(4, 12)
y = net(x).argmax(1)
marks.append(time.process_time())
attack.run(net, x, y)
marks.append(time.process_time())
sz.SparseAutoAttack, sz.Space
marks.append(time.process_time())
took = [after - before for before, after in zip(marks, marks[1:])]
found = {"torch": took[0], "sigmazero": took[1], "first_run": took[3], "cascade": took[4]}
found["loaded"] = [name for name in ("torch._dynamo", "torch._inductor", "triton") if name in sys.modules]
print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="append the line to this JSON-lines file")
    args = parser.parse_args()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    rounds = []
    for _ in range(args.rounds + 1):  # the first one fills the disk's cache and does not count
        done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True, env=env)
        rounds.append(json.loads(done.stdout))
    counted = rounds[1:]
    line = {
        f"{name}_s": round(statistics.median(one[name] for one in counted), 3)
        for name in ("torch", "sigmazero", "first_run", "cascade")
    }
    ratios = [(one["sigmazero"] + one["first_run"]) / one["torch"] for one in counted]
    added = statistics.median(one["sigmazero"] + one["first_run"] for one in counted)
    line |= {"added_s": round(added, 3), "ratio": round(statistics.median(ratios), 3)}
    say(
        {"rounds": args.rounds, **line, "compiler": sorted({name for one in counted for name in one["loaded"]})},
        args.out,
    )


if __name__ == "__main__":
    main()
