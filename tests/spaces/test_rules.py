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


def test_changes_that_break_a_rule_give_way():
    p = inner(url())
    raw = p.from_user(torch.tensor([[0.0, 30, 5, 1], [0, 40, 99, 0]], dtype=torch.float64))
    # A host longer than the path goes back to its length; both together are too long, and the smaller change gives way.
    asked = p.to_user(p.snap(raw))
    assert asked.tolist() == [[13, 5, 5, 1], [120, 18, 99, 0]]
    assert p.l0(p.snap(raw)).tolist() == [0, 2]  # what follows is not counted
    assert torch.equal(p.snap(p.snap(raw)), p.snap(raw))
    # The path may join in, and nothing else.
    keys = torch.tensor([[torch.inf, torch.inf, 0.0, torch.inf]] * 2, dtype=torch.float64)
    assert p.to_user(p.complete(raw, lambda: keys)).tolist() == [[63, 30, 30, 1], [120, 40, 77, 0]]
    both = torch.stack([raw, p.x], 1)
    assert torch.equal(p.to_user(p.snap(both))[:, 0], asked)
    assert torch.equal(p.to_user(p.snap(both))[:, 1], ROWS)


def test_categories_and_sets_keep_rules():
    """A rule over a category cannot be repaired by parts: what it ties together goes back, and nothing else."""
    space = sz.Space(
        kind={0: "binary", 1: "binary", 2: "binary", 3: "values"},
        values={3: [0, 2, 5, 7]},
        one_hot={"job": [0, 1]},
        rules=[sz.Rule({0: 1, 2: 1}, "<=", 1), sz.Rule({3: 1}, "<=", 6)],
    )
    x = torch.tensor([[0.0, 1.0, 1.0, 2.0, 0.5]], dtype=torch.float64)
    p = inner(space, x)
    raw = torch.tensor([[1.0, 0.0, 1.0, 7.0, 0.75]], dtype=torch.float64)
    assert p.to_user(p.snap(p.from_user(raw))).tolist() == [[0.0, 1.0, 1.0, 5.0, 0.75]]


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


def test_a_success_that_breaks_a_rule_is_none():
    """Even if a search claims it: every rule is judged again at the end."""
    p = inner(url())
    good = torch.tensor([[16.0, 5, 8, 1], [23, 8, 12, 0]], dtype=torch.float64)
    broken = torch.tensor([[17.0, 9, 5, 1], [24, 8, 12, 0]], dtype=torch.float64)  # a rule; what follows
    assert p.legal(good).tolist() == [True, True]
    assert p.legal(broken).tolist() == [False, False]


def test_written_and_read_again(tmp_path):
    for space in (url(), sz.Space(rules=[sz.Rule({0: 1, 2: 0.5}, ">=", 0.25)], derived={3: sz.Formula({1: 2})})):
        (tmp_path / "space.toml").write_text(space.to_toml())
        again = sz.Space.from_toml(tmp_path / "space.toml")
        assert again.identity((4,)) == space.identity((4,))
        assert again.to_toml() == space.to_toml()
    assert url(rules=[]).identity((4,)) != url().identity((4,))
    one, two = (sz.Space(derived={0: function}).identity((4,)) for function in (product, itself))
    assert one != two
    typed, other = (sz.Space(accept=eval(f"lambda a, b: a[:, 0] > {k}")).identity((4,)) for k in (0, 1))
    assert typed != other  # code that stands in no file


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


def test_features_without_an_end_take_part_in_rules():
    """σ-zero needs no ends: what a rule says is all that holds a feature back."""
    inf = float("inf")
    space = sz.Space(lower=-inf, upper=inf, kind={2: "binary"}, rules=[sz.Rule({0: 1, 1: 1}, "<=", 3)])
    net = torch.nn.Linear(3, 2, dtype=torch.float64).requires_grad_(False)
    net.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    net.bias.copy_(torch.tensor([3.5, 0.0]))
    x, y = torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
    result = sz.get("sigma-zero", steps=60).run(net, x, y, space=space)
    assert result.success.all()
    assert (result.x_adv[:, 2] == 1).all()  # 3 of the others do not suffice
    assert (result.x_adv[:, :2].sum(1) <= 3 + 1e-9).all()
