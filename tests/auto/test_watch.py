"""The bar of a gate ends where it should, whatever rows leave; and findings that a version copes with do not count."""

import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.auto.gating import examined
from sigmazero.auto.watch import GateWatch
from sigmazero.data import Rows
from tests.auto.conftest import custom, problem


def test_the_bar_counts_what_is_left():
    moved: list[float] = []
    net, x, y = problem(12, dtype=torch.float32)
    cascade = custom(net, 2, [sz.get("sigma-zero", steps=8), sz.get("fmn", steps=4), sz.get("sparse-rs", steps=20)])
    most = cascade.most(x, y)
    assert most == {"sigma-zero": 16, "fmn": 8, "sparse-rs": 20}
    watch = GateWatch(moved.append, most, 12, 2)
    watch.begin(cascade.members[0], 12)(12)
    assert sum(moved) == 12 * 16
    watch.begin(cascade.members[1], 5)  # seven have left: nobody asks about them again
    assert sum(moved) == 12 * 44 - 5 * 28
    moved.clear()
    cascade.watch = GateWatch(moved.append, most, 12, 2)
    cascade.run_standard_evaluation(x, y, bs=4)
    left = int((cascade.report.l0 > 2).all(0).sum())
    assert left < 12
    assert abs(sum(moved) - 12 * 44) <= 12 * 20  # rows that the last member fools leave at once


class Noisy(nn.Module):
    """Another answer each time, by far too little to matter."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out + 1e-3 * torch.randn_like(out)


def test_a_version_copes_with_what_it_is_made_for():
    torch.manual_seed(0)
    model, x = Noisy().eval().requires_grad_(False), torch.rand(8, 6)
    rows = Rows(x, model.inner(x).argmax(1), torch.arange(8), "given")
    for version, codes in (("rand", []), ("quick", ["SZ003"])):
        cascade = sz.SparseAutoAttack(model, "L0", 1, version=version, verbose=False)
        assert [found.code for found in examined(cascade, rows)] == codes
    cascade = custom(model, 1, [sz.get("fmn", steps=4)])
    told = sz.gate(model, (rows.images, rows.labels), 1, version="custom", attacks_to_run=cascade.members)
    assert told.exit_code == 3
    accepted = sz.gate(
        model, (rows.images, rows.labels), 1, version="custom", attacks_to_run=cascade.members, allow=["SZ003"]
    )
    assert accepted.exit_code == 0
    assert accepted.document["findings"][0]["allowed"]
