"""The exact suite: its networks, answers and witnesses, and what it says of attacks."""

from dataclasses import replace

import pytest
import torch

import sigmazero as sz
from sigmazero import data
from sigmazero.certifier import suite
from sigmazero.certifier.certify import fitted
from sigmazero.certifier.suite import NAMES, build, digits, network

RIGHT = {  # of the 200 images, as scripts/train_suite.py left the networks
    "mlp-standard": 197,
    "mlp-adversarial": 193,
    "mlp-sparse": 191,
    "conv-standard": 195,
    "conv-sparse": 190,
    "conv-interval": 182,
}


def test_the_digits_are_those_of_the_data_set():
    rows = data.load("digits-8x8")
    ours = digits()
    assert torch.equal(rows.images[ours.ids], ours.images)
    assert torch.equal(rows.labels[ours.ids], ours.labels)
    assert len(ours.labels) == 200


@pytest.mark.parametrize("name", NAMES)
def test_networks_and_witnesses_hold(name):
    """Every witness anew, in float32 and in float64: it fools, inside the box, with the changes that are said."""
    ours, known, model = digits(), suite.answers(name), network(name)
    right = model(ours.images).argmax(1) == ours.labels
    assert int(right.sum()) == RIGHT[name]
    assert torch.equal(known.upper > 0, right)
    assert (known.lower <= known.upper).all()
    there = known.upper <= 64
    points = known.witness[there]
    assert ((points >= 0) & (points <= 1)).all()
    assert torch.equal((points != ours.images[there]).flatten(1).sum(1), known.upper[there])
    for numbers in (torch.float32, torch.float64):
        found = network(name).to(numbers)(points.to(numbers)).argmax(1)
        assert (found != ours.labels[there]).all()


def test_most_is_solved():
    shares = {name: float(suite.answers(name).exact.double().mean()) for name in NAMES}
    assert sum(share >= 0.95 for share in shares.values()) >= 4, shares


@pytest.mark.parametrize("name", NAMES)
def test_some_are_proved_again(name):
    """The cheapest digits of each network, without the witness: the same number comes out."""
    ours, known = digits(), suite.answers(name)
    some = (known.exact & (known.upper > 0) & (known.upper < 3)).nonzero().squeeze(1)[:4]
    found = sz.certify(network(name), ours.images[some], ours.labels[some], up_to=2, attack=None)
    assert found.lower.tolist() == found.upper.tolist() == known.upper[some].tolist()


def test_an_attack_is_measured_against_the_truth():
    one, two, both = suite.run("sigma-swap", ["mlp-standard", "mlp-sparse"], queries=200, limit=10)
    assert (one.network, two.network, both.network) == ("mlp-standard", "mlp-sparse", "all")
    assert both.images == 20
    assert 0 <= both.gap <= both.gap_most
    assert 0.5 < both.optimal <= 1
    assert both.queries <= 200


def test_the_figures_of_the_truth_itself_and_of_others():
    known = suite.answers("mlp-standard")
    assert known.exact.all()
    truth, right = known.upper.float(), known.upper > 0
    assert suite.gaps(known, truth) == (0, 0, 1)
    assert suite.gaps(known, 2 * truth) == (1, 1, 0)
    gap, _, optimal = suite.gaps(known, torch.where(right, torch.inf, 0.0))
    assert gap == pytest.approx(float((64 / truth[right].double() - 1).mean()))
    assert optimal == 0


def test_open_images_are_intervals():
    known = suite.answers("mlp-standard")
    lower, row = known.lower.clone(), int((known.upper == 3).nonzero()[0])
    lower[row] = 1
    gap, gap_most, optimal = suite.gaps(replace(known, lower=lower), known.upper.float())
    assert (gap, optimal) == (0, 1)
    assert gap_most == pytest.approx(2 / int((known.upper > 0).sum()))


def test_a_contradiction_is_said():
    known = suite.answers("mlp-standard")
    fewer = known.upper.float()
    fewer[int((known.upper == 3).nonzero()[0])] = 2
    with pytest.raises(RuntimeError, match=r"mine fools image \d+ with 2 changes, where 3 are proved to be needed"):
        suite.gaps(known, fewer, "mine")


def test_every_entrant_is_fitted():
    for name in suite.entrants():
        fitted(name, 1000)
    assert fitted("sigma-zero", 1000).steps == 500
    assert fitted("sparse-rs-min", 1000).steps == 1000
    assert fitted("sigma-swap", 1000).limit == 1000


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda: suite.run("sparse-rs"),
            "sparse-rs works with a fixed budget and has no fewest changes; try sparse-rs-m",
        ),
        (lambda: suite.run("sigma-zero", ["mlp"]), "the suite has no network 'mlp'; it has mlp-standard"),
        (lambda: suite.run("sigma-zero", queries=1), "queries=1 must be a whole number, 20 or more"),
        (lambda: suite.run("sigma-zero", limit=0), "limit=0 must be a whole number, 1 to 200"),
        (lambda: build("mlp"), "the suite has no network 'mlp'"),
    ],
)
def test_wrong_values_are_named_in_one_line(ask, said):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        ask()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
