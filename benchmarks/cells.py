"""What the benchmark adds to an attack: a cell of many batches against one plain run of the same rows.

    python -m benchmarks.cells --models M1 --limit 640 --batch-size 64 --steps 1000

Both are measured in turn, each with recordings of its own; compare the ratio. A cell should record its steps once, and
its seconds should be those of the plain run.
"""

import statistics

import torch

import sigmazero as sz
from benchmarks.networks import networks, options, say
from sigmazero.bench.cells import Loader, expand
from sigmazero.bench.plan import DataSpec, ModelSpec, Question
from sigmazero.bench.worker import Worker
from sigmazero.data import Rows


def main() -> None:
    parser = options(__doc__, limit=640)
    parser.add_argument("--attack", default="sigma-zero")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    attack = sz.get(args.attack, steps=args.steps)
    for code, model, x, y, ids in networks(args):
        loader = Loader(x.device)
        spec, rows = ModelSpec(code, code), DataSpec("given", "given")
        loader.give_model(spec, model)
        loader.give_rows(rows, Rows(x.cpu(), y.cpu(), ids, "given"))
        question = Question(spec, rows, attack.name, attack, precision=args.precision, batch_size=args.batch_size)
        (cell,), _ = expand([question], loader)
        plain: list[float] = []
        inside: list[float] = []
        recordings = batches = 0
        for turn in range(args.rounds + 1):  # the first round loads libraries and does not count
            alone = attack.run(model, x, y, ids=ids, batch_size=args.batch_size, precision=args.precision)
            worker = Worker(loader)
            made = list(worker.attack(cell, slice(0, len(x))))
            batches, recordings = len(made), worker.recordings
            if turn:
                plain.append(alone.seconds)
                inside.append(sum(one.seconds for one in made))
            del worker
        ratio = statistics.median(inside) / statistics.median(plain)
        line = {
            "model": code,
            "rows": len(x),
            "batches": batches,
            "recordings": recordings,
            "precision": args.precision,
        }
        line |= {"plain_s": statistics.median(plain), "cell_s": statistics.median(inside), "ratio": ratio}
        say(line | {"attack": attack.name, "steps": args.steps, "torch": torch.__version__}, args.out)


if __name__ == "__main__":
    main()
