"""Train a small network on a table, plainly or against changes that its space allows; about a minute on one processor.

    python -m scripts.train_table adult.csv.gz --notes benchmarks/notes/adult.toml --out adult-mlp.safetensors
    python -m scripts.train_table adult.csv.gz --notes benchmarks/notes/adult.toml --out robust.safetensors --changes 3

So were made adult-mlp and adult-mlp-robust, which come with the package (src/sigmazero/models/weights).

Rows of the part `train` are trained on where the table has parts; else all but a fifth, chosen with a fixed seed. With
`--changes 3` half of each batch is changed in up to three columns, each time by the worst of a few legal changes.
"""

import argparse
from pathlib import Path

import torch
from scripts.training import accuracy, one_cycle, repeatable, save
from torch import Tensor, nn
from torch.nn import functional as F

from sigmazero.data import Rows, Table, choose
from sigmazero.models.architectures.small import TableMLP
from sigmazero.spaces.space import Columns


def parts(table: Table) -> tuple[Rows, Rows]:
    """Rows to train on and rows that are held out."""
    if table.part is not None:
        return table.rows("train", torch.float32), table.rows(dtype=torch.float32)
    rows = table.rows(dtype=torch.float32)
    held = set(choose(len(rows), len(rows) // 5, seed=0))
    return rows.select([row for row in range(len(rows)) if row not in held]), rows.select(sorted(held))


class Moves:
    """The legal single changes of rows: another word of a category, any value between the ends of a number."""

    def __init__(self, x: Tensor, columns: Columns, noise: torch.Generator) -> None:
        lower, upper, around = (torch.tensor(a, dtype=x.dtype) for a in (columns.lower, columns.upper, columns.around))
        rise, fall = (torch.tensor(a[0]) for a in (columns.rise, columns.fall))
        self.low = torch.where(fall, torch.maximum(lower, x - around), x)
        self.high = torch.where(rise, torch.minimum(upper, x + around), x)
        self.step = torch.tensor([float(kind != "real") for kind in columns.kind])
        self.group = torch.arange(x.shape[1])  # each feature names the first of its group
        self.hot = torch.zeros(x.shape[1], dtype=torch.bool)
        for some in columns.groups:
            members = list(some.members)
            self.group[members], self.hot[members] = min(members), some.one_hot
        self.free, self.noise = self.high > self.low, noise

    def some(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """One change of each row by chance, and the sites it changes; every site is as likely as another."""
        chance = torch.rand(points.shape, generator=self.noise) * (self.free & ~(self.hot & (points == 1)))
        sites = torch.zeros_like(points).scatter_reduce(1, self.group.expand_as(points), self.free.float(), "sum")
        chance = chance ** sites[:, self.group].clamp_min(1)  # a large group is no likelier than a number
        best = chance.argmax(1, keepdim=True)
        low, high = self.low.gather(1, best), self.high.gather(1, best)
        place = torch.rand(len(points), 1, generator=self.noise).mul(2).sub(0.5).clamp(0, 1)  # half of them are ends
        value = low + place * (high - low)
        value = torch.where(self.step[best] > 0, value.round(), value)
        hot, site = self.hot[best], self.group[best] == self.group
        moved = torch.where(site & hot, torch.zeros_like(points), points)
        return moved.scatter(1, best, torch.where(hot, torch.ones_like(value), value)), site


def worse(model: nn.Module, x: Tensor, y: Tensor, moves: Moves, changes: Tensor, tries: int) -> Tensor:
    """Rows with as many changes as asked for, one after the other, each the worst of some legal ones by chance.

    They are tried, not guessed from a gradient: a network learns to bend its gradients away sooner than to be robust.
    """
    points, free = x, moves.free
    for step in range(int(changes.max())):
        tried = [moves.some(points) for _ in range(tries)]
        with torch.no_grad():
            losses = torch.stack([F.cross_entropy(model(moved), y, reduction="none") for moved, _ in tried])
        worst, rows = losses.argmax(0), torch.arange(len(x))
        moved = torch.stack([moved for moved, _ in tried])[worst, rows]
        site = torch.stack([site for _, site in tried])[worst, rows]
        points = torch.where((step < changes)[:, None], moved, points)
        moves.free = moves.free & ~site
    moves.free = free
    return points


def train(model: nn.Module, rows: Rows, columns: Columns, options: argparse.Namespace) -> None:
    """Train on batches of which half, with `--changes`, are changed for the worse."""
    noise = torch.Generator().manual_seed(options.seed)

    def loss_of(some: Tensor, number: int) -> Tensor:
        x, y = rows.images[some], rows.labels[some]
        if options.changes:
            half = len(x) // 2
            many = torch.randint(1, options.changes + 1, (half,), generator=noise)
            moves = Moves(x[:half], columns, noise)
            x = torch.cat([worse(model, x[:half], y[:half], moves, many, options.tries), x[half:]])
        return F.cross_entropy(model(x), y)

    one_cycle(model, len(rows), loss_of, noise, epochs=options.epochs, batch=256, rate=3e-3, decay=1e-3)


def main() -> None:
    """Train, measure on the held-out rows, save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path, help="CSV, ARFF or Parquet")
    parser.add_argument("--notes", type=Path, help="what its columns are; the file beside the table unless given")
    parser.add_argument("--changes", type=int, default=0, help="columns changed at most in training; 0 is plain")
    parser.add_argument("--tries", type=int, default=8, help="changes tried for each that is made")
    parser.add_argument("--hidden", type=int, nargs="*", default=[64, 64])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    repeatable(options.seed)
    table = Table.read(options.table, options.notes)
    rows, held = parts(table)
    columns = table.space.columns((len(table.features),))
    model = TableMLP(len(table.features), options.hidden, len(table.classes))
    model[0].load_state_dict(table.scaler().state_dict())
    train(model, rows, columns, options)
    x, y = held.images, held.labels
    moves = Moves(x, columns, torch.Generator().manual_seed(options.seed))
    changed = worse(model, x, y, moves, torch.ones(len(held), dtype=torch.int64), 50)
    facts = {
        "accuracy_heldout": f"{accuracy(model, x, y):.4f}",
        "accuracy_one_change": f"{accuracy(model, changed, y):.4f}",
        "rows": f"{len(rows)} trained on, {len(held)} held out",
        "architecture": f"table-mlp, hidden {options.hidden}",
        "script": "scripts/train_table.py",
        "changes": str(options.changes),
        "seed": str(options.seed),
        "epochs": str(options.epochs),
    }
    save(model, options.out, facts)


if __name__ == "__main__":
    main()
