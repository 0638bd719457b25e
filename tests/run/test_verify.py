"""What is reported was asked afresh, in full precision, and belongs together."""

import pytest
import torch

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from sigmazero.core.result import Outcome
from sigmazero.run.precision import Numbers
from sigmazero.run.verify import Verifier
from tests.helpers.networks import TinyNet


def test_a_point_without_changes_is_verified_like_any_other():
    def wavering(x):
        """On one side of the boundary in a batch of four, on the other in a smaller one."""
        own = torch.full((len(x),), 1e-6 if len(x) == 4 else -1e-6) - 5 * (x[:, 0] > 0.9).float()
        return torch.stack([own, torch.zeros(len(x))], 1) + 0 * x.sum(1, keepdim=True)

    x = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.95, 0.1]])
    result = sz.get("sigma-zero", steps=5).run(wavering, x, torch.zeros(4, dtype=torch.int64))
    assert result.outcome.tolist() == [Outcome.ALREADY] * 4
    assert result.forwards.tolist() == [3, 3, 3, 1]  # clean check, search, verification; the last was wrong at once
    assert (result.margin < 0).all()
    assert (result.prediction == 1).all()


def test_the_step_is_that_of_the_point_reported():
    net = TinyNet("conv")
    x, y = net.x[:3], net.y[:3]
    attack = sz.get("sigma-zero", steps=60)
    best, classes = attack.run(net, x, y).x_adv, net(x).shape[1]

    def forgetful(x):
        """Denies the best points when they are asked about without a gradient."""
        denied = not x.requires_grad and torch.equal(x, best)
        return torch.nn.functional.one_hot(y, classes).to(x) if denied else net(x)

    with pytest.warns(UserWarning, match="SZ003"):
        result = attack.run(forgetful, x, y)
    assert result.success.all()
    for row in range(3):
        stopped = attack.run(net, x, y, budget=int(result.l0[row]))  # ends with the first point so sparse
        assert int(stopped.step_found[row]) == int(result.step_found[row])


def test_a_record_that_fails_gives_way_to_the_one_behind_it():
    """The second feature alone fools a model that changes its mind about it in the end."""
    minds = [True]

    def model(x):
        both = x[:, 0] + x[:, 1] > 1.5
        return torch.stack([torch.zeros(len(x)), (both | ((x[:, 1] > 0.5) & minds[0])).float() - 0.5], 1)

    problem = make_problem(torch.zeros(1, 2), torch.tensor([0]))
    oracle = Oracle(model, problem)
    for point in ([1.0, 1.0], [0.0, 1.0]):
        oracle.logits(torch.tensor([point]))
    assert oracle.incumbents.counts.tolist() == [[1, 2]]
    minds[0] = False
    result = Verifier(model, Numbers.strict("cpu"), rows=1).report(problem, oracle.incumbents, model(problem.x))
    assert (result.success.tolist(), result.l0.tolist(), result.given_up.tolist()) == ([True], [2], [1])
    assert result.forwards.tolist() == [1 + 2 + 2]
    assert "1 points of 1 samples are given up" in str(result)


@pytest.mark.parametrize(("rows", "asked"), [(1, 32), (32, 32), (33, 64), (65, 128), (128, 128), (200, 200)])
def test_few_rows_are_asked_as_a_quarter_or_a_half_of_a_batch(rows, asked):
    assert Verifier(lambda x: x, Numbers.strict("cpu"), rows=128)._rounded(rows) == asked
