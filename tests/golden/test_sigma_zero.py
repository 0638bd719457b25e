"""Every query of the authors' released code, reproduced."""

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.sigma_zero import SigmaZero
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from tests.golden.recorded import BATCH, Queries
from tests.helpers.networks import TRACES, TinyNet

RUNS = {
    "official_30": ("sigma-zero", 30, None),
    "official_100": ("sigma-zero", 100, None),
    "star_30": ("sigma-zero-star", 30, None),
    "star_100": ("sigma-zero-star", 100, None),
    "budget3_100": ("sigma-zero", 100, 3),
    "budget6_100": ("sigma-zero", 100, 6),
}
CORRECT = range(5)  # the sixth input of each network carries a wrong label


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("run", RUNS)
def test_every_query_is_the_released_codes(run, kind, monkeypatch):
    name, steps, budget = RUNS[run]
    net = TinyNet(kind)
    recorder = Queries(monkeypatch, "value_and_grad")
    result = sz.get(name, steps=steps).run(net, net.x, net.y, budget=budget, batch_size=BATCH)
    with np.load(TRACES / f"sigma_zero_{run}.npz") as arrays:
        trace = {k.removeprefix(f"{kind}__"): arrays[k] for k in arrays.files if k.startswith(kind)}
    for row in CORRECT:
        comparable = min(trace["n_saved"][row], trace["stable_queries"][row])
        ours = torch.stack(recorder.points[row])
        assert comparable > 0
        torch.testing.assert_close(
            ours[:comparable], torch.from_numpy(trace["queries"][row, :comparable]), rtol=0, atol=1e-9
        )
        # The trace counts the search alone; a run also counts the clean check and the verification.
        assert result.forwards[row] - 1 - int(result.success[row]) == trace["n_forward"][row]
        assert result.backwards[row] == trace["n_backward"][row]
        if trace["stable_queries"][row] == trace["n_forward"][row]:
            assert result.l0[row] == trace["l0"][row]
            assert result.success[row] == trace["success"][row]
            final = torch.from_numpy(trace["final"][row])
            torch.testing.assert_close(result.x_adv[row], final, rtol=0, atol=1e-9)
    assert result.l0[5] == 0
    assert result.forwards[5] == 1
    assert result.backwards[5] == 0


def test_threshold_is_strict():
    """A change exactly as large as the threshold survives; the traces contain no such case."""
    net = TinyNet("conv")
    x = torch.zeros_like(net.x[:1])
    seen = []

    def model(point):
        seen.append(point.detach().clone())
        return net(point)

    # A step longer than the box lands on its face: the change is exactly 1, as is the threshold.
    attack = sz.get("sigma-zero", steps=2, step_size=2.0, threshold=1.0, adaptive_threshold=False)
    attack.run(model, x, net(x).argmax(1))
    assert set(seen[2].unique().tolist()) == {0.0, 1.0}


def test_the_threshold_does_not_fall_below_0():
    """From there the first success raises it at once; a negative one would have to be made good first."""
    net = TinyNet("conv")
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    answer = outputs[0]
    oracle = Oracle(lambda x: x.flatten(1)[:, :2] * 0 + answer, make_problem(net.x[:1], torch.tensor([0])))
    attack = SigmaZero(steps=100, threshold=0.05)
    state = attack.init(oracle)
    for i in range(10):
        state = attack.step(torch.tensor(i), state, oracle)
    assert state.τ.item() == 0
    answer = outputs[1]
    state = attack.step(torch.tensor(10), state, oracle)
    assert state.τ.item() == pytest.approx(0.01 * attack.rates[10, 1].item(), rel=1e-12)
