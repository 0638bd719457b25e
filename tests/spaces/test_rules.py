"""Rules and derived features of spaces: what is refused, what is kept, how they are read and written."""

import re
from typing import Any

import pytest
import torch

import sigmazero as sz
from sigmazero.core.domain import Domain
from sigmazero.core.inputs import make_problem

NAMES = ["length", "host", "path", "dots"]
ROWS = torch.tensor([[13.0, 5.0, 5.0, 1.0], [23.0, 8.0, 12.0, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 1])


def url(**more: Any) -> sz.Space:
    given = {
        "names": NAMES,
        "kind": "integer",
        "upper": {"host": 50, "path": 99, "dots": 9},
        "rules": [sz.Rule({"host": 1, "path": -1}, "<=", 0), sz.Rule({"length": 1}, "<=", 120)],
        "derived": {"length": sz.Formula({"host": 1, "path": 1}, 3)},
    }
    return sz.Space(**given | more)


def inner(space: sz.Space, x: torch.Tensor = ROWS) -> Domain:
    return make_problem(x, LABELS[: len(x)], space=space).domain


def itself(points: torch.Tensor) -> torch.Tensor:
    return points[:, 0]


def product(points: torch.Tensor) -> torch.Tensor:
    return points[:, 1] * points[:, 2]


def unlike(points: torch.Tensor) -> torch.Tensor:
    return points[:, :2]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rules": [sz.Rule({"hots": 1}, "<=", 1)]}, "there is no feature 'hots'; did you mean 'host'?"),
        ({"rules": [sz.Rule({"host": 1}, "<", 1)]}, "rule 0 has sense '<', which is not one of <=, >=, ="),
        ({"rules": [sz.Rule({"host": float("nan")}, "<=", 1)]}, "the factor of feature 'host' is nan; give a finite"),
        ({"rules": [sz.Rule({"host": 1}, "<=", float("nan"))]}, "rule 0: the bound is nan; give a finite number"),
        ({"rules": [sz.Rule({}, "<=", 1)]}, "rule 0 has terms={}; write them as {feature: factor}"),
        (
            {"rules": [sz.Rule({"host": 1, "path": 1}, "=", 10)]},
            "input row 1 breaks the rule 1·'host' + 1·'path' = 10: the sum is 20; correct the input or the rule",
        ),
        ({"derived": {"length": {"length": 1}}}, "derived feature 'length' depends on itself ('length' → 'length')"),
        (
            {"derived": {"length": {"host": 1}, "host": {"length": 1}}},
            "derived feature 'length' depends on itself ('length' → 'host' → 'length'); break the circle",
        ),
        ({"derived": {"length": itself}}, "derived feature 'length' depends on itself, or on a derived feature"),
        (
            {"derived": {"length": unlike}},
            "the function of derived feature 'length' returned shape (2, 2) for 2 points",
        ),
        (
            {"derived": {"length": {"host": 1, "path": 1}}},
            "feature 'length' of input row 0 is 13, but by what it is derived from it is 10; recompute it in the data",
        ),
        ({"tied": {"two": ["length", "dots"]}}, "feature 'length' is derived and in group 'two'; take it out"),
        ({"derived": {"lenght": {"host": 1}}}, "there is no feature 'lenght'; did you mean 'length'?"),
        (
            {"upper": {"host": 50, "path": 99, "length": 20}},
            "feature 'length' of input row 1 is 23, which is not between",
        ),
    ],
)
def test_what_is_wrong_is_named(wrong, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        make_problem(ROWS, LABELS, space=url(**wrong))
    assert "\n" not in str(error.value)


def test_wrong_types_are_named():
    with pytest.raises(TypeError, match="rule 0 is a dict; write Rule"):
        url(rules=[{"host": 1}])
    with pytest.raises(TypeError, match="derived feature 'length' is a int; give a Formula or a function"):
        url(derived={"length": 3})


def test_whole_numbers_are_not_off_by_rounding():
    """Counts of millions in float32, where a last digit of the sum is more than 1/8: a rule is broken by one."""
    space = sz.Space(kind="integer", upper=16e6, rules=[sz.Rule({0: 1, 1: -1}, "<=", 0)])
    x = torch.tensor([[9e6, 9e6]])
    p = inner(space, x)
    assert p.to_user(p.snap(p.from_user(x + torch.tensor([[1.0, 0.0]])))).tolist() == x.tolist()
    assert p.legal(x + torch.tensor([[1.0, 0.0]])).tolist() == [False]


def test_what_follows_may_be_any_function_and_gradients_reach_through():
    space = sz.Space(names=["area", "a", "b"], upper={"a": 4, "b": 4}, derived={"area": product})
    net = torch.nn.Linear(3, 2, dtype=torch.float64).requires_grad_(False)
    net.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    net.bias.copy_(torch.tensor([5.0, 0.0]))
    x, y = torch.tensor([[2.0, 2.0, 1.0]], dtype=torch.float64), torch.tensor([0])
    for name in ("sigma-zero", "sigma-swap", "corner"):  # the model looks at the area alone
        result = sz.get(name, steps=40).run(net, x, y, space=space)
        assert result.success.all(), name
        assert result.x_adv[0, 0] == result.x_adv[0, 1] * result.x_adv[0, 2]
        assert (result.l0.tolist(), result.l0_pixel.tolist(), result.cost.tolist()) == ([1.0], [1.0], [1.0])
    with pytest.raises(ValueError, match="a file cannot hold the function of derived feature 'area'; write it as"):
        space.to_toml()


def test_written_and_read_again(tmp_path):
    for space in (url(), sz.Space(rules=[sz.Rule({0: 1, 2: 0.5}, ">=", 0.25)], derived={3: sz.Formula({1: 2})})):
        (tmp_path / "space.toml").write_text(space.to_toml())
        again = sz.Space.from_toml(tmp_path / "space.toml")
        one, two = again.columns((4,)).laws, space.columns((4,)).laws
        for name in ("rules", "least", "most", "sums", "constants"):
            assert getattr(one, name).tolist() == getattr(two, name).tolist(), name
        assert again.to_toml() == space.to_toml()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rule]]\nterms = {a = 1}\n", ":1: give one of at_most, at_least, equals"),
        ("[[rule]]\nterms = {a = 1}\nmost = 1\n", ":3: unknown key 'most'"),
        ("[feature.a]\n[[rule]]\nterms = {b = 1}\nat_most = 1\n", "there is no feature 'b'"),
        ("[derived.a]\nterm = {b = 1}\n", ":2: unknown key 'term'; did you mean 'terms'"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, text, words):
    (tmp_path / "space.toml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        sz.Space.from_toml(tmp_path / "space.toml")
    assert "\n" not in str(error.value)
