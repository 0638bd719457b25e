"""Attacks in spaces: every point is legal by code that shares nothing with them, and counted right."""

from functools import partial
from math import isfinite
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sigmazero as sz
from tests.helpers import loans
from tests.helpers.attacks import how, same, short
from tests.helpers.networks import Linear, TinyNet, linear_problem
from tests.helpers.spaces import Plain, bind, draw, fewest, inputs, network, numbered

IN_SPACES = [name for name, attack in sorted(sz.ATTACKS.items()) if attack.spaces]
OTHERS = [name for name, attack in sorted(sz.ATTACKS.items()) if not attack.spaces]
SEEDS = (1018, 38)  # of spaces that have everything between them
SHAPE = (3, 6, 6)
PIXEL = np.arange(108).reshape(SHAPE)  # flat places of an image's values


class Counted(torch.nn.Module):
    """Counts the rows that pass a network, forwards and backwards."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net, self.seen = net, {"forwards": 0, "backwards": 0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits."""
        logits: torch.Tensor = self.net(x)
        self.seen["forwards"] += len(x)
        if logits.requires_grad:
            logits.register_hook(lambda grad: self.seen.update(backwards=self.seen["backwards"] + len(grad)))
        return logits


def checked(plain: Plain, net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, result: sz.Result) -> None:
    """Every point is legal, fools the network, and has the l0 and the cost that are claimed."""
    clean, points = x.double().numpy(), result.x_adv.double().numpy()
    assert not plain.complaints(clean, points, 1e-9)
    l0, cost = plain.count(clean, points)
    found = result.found
    assert (net(result.x_adv).argmax(1) != y)[found].all()
    assert result.l0[found].tolist() == np.array(l0, dtype=float)[found.numpy()].tolist()
    assert np.allclose(result.cost[found].numpy(), np.array(cost)[found.numpy()])
    assert torch.equal(result.x_adv[~found], x[~found])
    assert result.cost[~found].isinf().all()
    within = found if result.budget is None else result.l0 <= result.budget
    assert torch.equal(result.success, within)
    assert (result.given_up == 0).all()  # what was claimed was asked about, and was legal then


def ruled(seed: int, finite: bool = False, priced: bool | None = None) -> Any:
    """A space with rules, inputs, a network and labels; in some the inputs are equal, so that a rule may say "="."""
    random = Random(seed)
    plain = draw(random, finite, priced=priced)
    x = inputs(plain, random)
    x = x[:1].repeat(3, 1) if len(plain.direction) == 1 and random.random() < 0.5 else x
    x = bind(plain, x, random)
    net = network(len(plain), seed % 1000)
    return plain, x, net, net(x).argmax(1)


def free(seed: int, finite: bool = False, priced: bool | None = None, rows: int = 3) -> Any:
    """The same without rules."""
    random = Random(seed)
    plain = draw(random, finite, rows, priced)
    x, net = inputs(plain, random, rows), network(len(plain), seed % 1000)
    return plain, x, net, net(x).argmax(1)


@pytest.mark.parametrize("name", IN_SPACES)
@settings(max_examples=2)
@given(seed=st.integers(0, 2**31), rules=st.booleans())
@example(seed=SEEDS[0], rules=True)
@example(seed=SEEDS[1], rules=True)
def test_every_point_is_legal_and_every_query_counted(name, seed, rules):
    attack = short(name, 12)
    plain, x, net, y = (ruled if rules else free)(seed)
    counted = Counted(net)
    result = attack.run(counted, x, y, space=plain.space(), **how(attack, 3))
    checked(plain, net, x, y, result)
    assert {field: int(getattr(result, field).sum()) for field in counted.seen} == counted.seen


def test_the_chosen_spaces_have_everything():
    has: set[str] = set()
    for seed in SEEDS:
        plain, x, net, y = ruled(seed)
        has |= {*plain.kind, *(word for row in plain.direction for word in row), *(rule[1] for rule in plain.rules)}
        has |= {name for name in ("one_hot", "tied", "derived", "ratio") if getattr(plain, name)}
        has |= {name for name, some in (("grid", any(plain.grid)), ("cost", len(set(plain.cost)) > 1)) if some}
        has |= {"around"} if any(map(isfinite, plain.around)) else set()
        assert sz.get("corner", steps=40).run(net, x, y, space=plain.space()).success.all()
    kinds = {"real", "integer", "binary", "values", "grid", "one_hot", "tied", "around", "cost"}
    assert has == kinds | {"both", "up", "down", "none", "<=", ">=", "=", "derived", "ratio"}


def against(best, result, priced):
    """The least there is and what was found, row by row: changes, or cost."""
    pairs = [
        (cost, float(result.cost[row])) if priced else (l0, float(result.l0[row]))
        for row, (l0, cost, _) in enumerate(best)
    ]
    assert all(got >= least - 1e-6 for least, got in pairs)
    return pairs


@pytest.mark.parametrize(
    ("made", "name", "options", "gap", "lost"),
    [
        (free, "sigma-swap", {"queries": 200}, 0.04, 0.0),
        (free, "corner", {"steps": 100}, 0.04, 0.0),
        (free, "sigma-zero", {"steps": 60}, 0.2, 0.05),
        (ruled, "sigma-swap", {"queries": 150}, 0.08, 0.0),
        (ruled, "corner", {"steps": 60}, 0.04, 0.0),
        (ruled, "sigma-zero", {"steps": 60}, 0.35, 0.15),
    ],
)
def test_gap_to_the_true_minimum(made, name, options, gap, lost):
    """Over all points of finite spaces: the mean excess, and the share of rows not fooled.

    Of changes in spaces without rules, of cost in spaces with rules.
    """
    pairs: list[tuple[float, float]] = []
    priced = made is ruled
    for seed in (0, 1, 4, 6, 8):  # some of these inputs can be fooled, with rules too
        plain, x, net, y = made(seed, finite=True, priced=priced)
        result = sz.get(name, **options).run(net, x, y, space=plain.space())
        checked(plain, net, x, y, result)
        pairs += against(fewest(plain, net, x, y), result, priced)
    possible = [(least, got) for least, got in pairs if isfinite(least)]
    found = [(least, got) for least, got in possible if isfinite(got)]
    assert len(possible) > 4
    assert len(possible) - len(found) <= lost * len(possible)
    assert sum(got for _, got in found) <= (1 + gap) * sum(least for least, _ in found)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31))
def test_corner_finds_every_single_change(seed):
    plain, x, net, y = free(seed, finite=True)
    result = sz.get("corner").run(net, x, y, space=plain.space())
    for row, (l0, cost, single) in enumerate(fewest(plain, net, x, y)):
        if single < np.inf:
            assert cost - 1e-6 <= float(result.cost[row]) <= single + 1e-6
            assert set(plain.cost) != {1.0} or float(result.l0[row]) == l0 == 1


@pytest.mark.parametrize("name", ["sigma-swap", "corner", "sigma-zero"])
def test_a_change_takes_the_partner_that_a_sum_asks_for(name):
    """Shares that stay 1.2 together: none can change alone, and the first and the last have to."""
    net = torch.nn.Linear(3, 2, dtype=torch.float64).requires_grad_(False)
    net.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, -1.0]]))
    net.bias.copy_(torch.tensor([0.7, 0.0]))
    x, y = torch.tensor([[0.4, 0.4, 0.4]], dtype=torch.float64), torch.tensor([0])
    for grid in (0.1, 0.0):
        space = sz.Space(grid=grid, rules=[sz.Rule({0: 1, 1: 1, 2: 1}, "=", 1.2)])
        result = sz.get(name, steps=60).run(net, x, y, space=space)
        assert result.success.all(), grid
        assert abs(float(result.x_adv.sum()) - 1.2) < 1e-9
        assert name == "sigma-zero" or result.l0.tolist() == [2.0]


@pytest.mark.parametrize(
    ("name", "options", "gap"),
    [
        ("sigma-swap", {"queries": 400}, 0.02),
        ("corner", {}, 0.02),
        ("saliency", {}, 0.02),
        ("genetic", {"steps": 60}, 0.1),
    ],
)
def test_features_added_to_a_linear_detector(name, options, gap):
    """The fewest are known: those that speak most for it, until the score is below 0."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(60, generator=generator, dtype=torch.float64)
    x = (torch.rand(16, 60, generator=generator) < 0.2).double()

    def detector(points: torch.Tensor) -> torch.Tensor:
        score = points @ weight + 12
        return torch.stack([-score, score], 1)

    gains = torch.where(x == 0, -weight, 0).clamp(min=0).sort(1, descending=True).values.cumsum(1)
    optimum = (gains <= detector(x)[:, 1:]).sum(1) + 1
    assert (optimum < 40).all()
    added = sz.Space(kind="binary", direction="up")
    result = sz.get(name, **options).run(detector, x, torch.ones(16).long(), space=added)
    assert (result.x_adv >= x).all()
    assert (result.l0 >= optimum).all()
    assert result.l0.mean() <= (1 + gap) * optimum.double().mean()


@pytest.mark.parametrize("name", OTHERS)
def test_others_refuse_before_the_first_query(name):
    def never_asked(x):
        raise AssertionError("the model was asked")

    with pytest.raises(ValueError, match=f"{name}.* space"):
        sz.ATTACKS[name].run(never_asked, torch.zeros(2, 4), torch.zeros(2).long(), space=sz.Space(kind="binary"))


@pytest.mark.parametrize("name", sorted(sz.ATTACKS))
def test_a_space_that_is_a_box_is_the_box(name):
    """Nothing but ends and a direction of images: the same search as with bounds and a mask, to the bit."""
    net = torch.nn.Sequential(torch.nn.Flatten(), network(6, 1))
    x = torch.rand(4, 1, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4 - 1
    y, attack = net(x).argmax(1), short(name, 15)
    mask = torch.tensor([True, True, False, True, True, True]).view(1, 2, 3)
    space = sz.Space(lower=-1, upper=3, direction=["both", "both", "none", "both", "both", "both"])
    one = attack.run(net, x, y, bounds=(-1, 3), mask=mask, **how(attack, 3))
    same(one, attack.run(net, x, y, space=space, **how(attack, 3)))
    assert torch.equal(one.cost, one.l0)


@pytest.mark.parametrize("name", IN_SPACES)
def test_an_affine_change_of_units_changes_nothing(name):
    """Powers of two scale without rounding: other units, the same search and the same points."""
    random = Random(3)
    plain = draw(random)
    while plain.one_hot or plain.tied or "binary" in plain.kind or 0.1 in plain.grid or "integer" in plain.kind:
        plain = draw(random)
    x, net = inputs(plain, random), network(len(plain), 3)
    y, attack = net(x).argmax(1), short(name, 15)
    other = Plain(
        [None if legal is None else [v * 8 for v in legal] for legal in plain.legal],
        [(low * 8, high * 8) for low, high in plain.ends],
        plain.kind,
        [step * 8 for step in plain.grid],
        plain.direction,
        plain.cost,
        [far * 8 for far in plain.around],
    )
    one = attack.run(net, x, y, space=plain.space(), **how(attack, 3))
    two = attack.run(lambda z: net(z / 8), x * 8, y, space=other.space(), **how(attack, 3))
    assert torch.equal(one.x_adv * 8, two.x_adv)
    assert torch.equal(one.forwards, two.forwards)
    assert torch.equal(one.cost, two.cost)


@pytest.mark.parametrize("name", ["sigma-zero", "sigma-swap", "corner", "sparse-rs-min"])
def test_units_change_nothing_where_there_are_rules(name):
    """Shares, a sum of them and a real feature: in eighths of the unit the same points."""
    net = network(5, 4)
    x = torch.tensor([[0.25, 0.5, 0.25, 1.25, 0.75], [0.5, 0.25, 0.5, 1.25, 1.5]], dtype=torch.float64)
    y, attack, found = net(x).argmax(1), short(name, 30), []
    for unit in (1.0, 8.0):
        space = sz.Space(
            lower=0,
            upper=2 * unit,
            grid={0: unit / 4, 1: unit / 4},
            rules=[sz.Rule({0: 1, 4: -1}, "<=", 0.25 * unit), sz.Rule({0: 1, 1: 1}, ">=", 0.25 * unit)],
            derived={3: {0: 1, 1: 2}},
        )
        clean = x.clone()
        clean[:, 3] = clean[:, 0] + 2 * clean[:, 1]
        found.append(attack.run(partial(lambda unit, z: net(z / unit), unit), clean * unit, y, space=space))
    assert torch.equal(found[0].x_adv * 8, found[1].x_adv)
    assert torch.equal(found[0].forwards, found[1].forwards)


@pytest.mark.parametrize("name", IN_SPACES)
def test_a_batch_of_any_size_gives_the_same(name):
    plain, x, _, _ = free(5, rows=4)
    net, attack = Linear((len(plain),)), short(name, 8)  # it rounds alike in a batch of any size
    options = how(attack, 3) | ({"pool": x} if name == "bb-dataset" else {})
    same(*(attack.run(net, x, net(x).argmax(1), space=plain.space(), batch_size=n, **options) for n in (4, 3)))


@pytest.mark.parametrize("name", IN_SPACES)
def test_images_of_eight_bits_survive_being_saved(name):
    """In single precision, in which a step of 1/255 rounds."""
    net, attack = torch.nn.Sequential(torch.nn.Flatten(), network(4, 1, torch.float32)), short(name, 40)
    x = torch.randint(256, (6, 1, 2, 2), generator=torch.Generator().manual_seed(2)) / 255
    result = attack.run(net, x, net(x).argmax(1), space=sz.Space.image8(), **how(attack, 3))
    saved = (result.x_adv * 255).round().to(torch.uint8)
    assert torch.equal(saved.float() / 255, result.x_adv)
    found = result.found
    assert found.any()
    assert torch.equal((result.x_adv != x).flatten(1).sum(1)[found], result.l0[found].long())


SITES: dict[str, tuple[sz.Space, list[Any]]] = {
    "patches": (
        sz.Space.patches(SHAPE, 3),
        [PIXEL[:, i : i + 3, j : j + 3].ravel() for i in (0, 3) for j in (0, 3)],
    ),
    "rows": (sz.Space.rows(SHAPE), [PIXEL[:, i].ravel() for i in range(6)]),
    "columns": (sz.Space.image_columns(SHAPE), [PIXEL[:, :, j].ravel() for j in range(6)]),
    "pixels": (sz.Space.pixels(SHAPE), [PIXEL[:, i, j].ravel() for i in range(6) for j in range(6)]),
}


@pytest.mark.parametrize(
    ("name", "sites"), [(name, "patches") for name in IN_SPACES] + [("sigma-zero", sites) for sites in list(SITES)[1:]]
)
def test_parts_of_images_count_once(name, sites):
    space, members = SITES[sites]
    net, attack = TinyNet("rgb"), short(name, 15)
    result = attack.run(net, net.x, net.y, space=space, **how(attack, 2))
    found = result.found
    changed = (result.x_adv != net.x).flatten(1)
    counted = torch.stack([changed[:, site].any(1) for site in members], 1).sum(1)
    assert found[:5].any()
    assert torch.equal(counted[found], result.l0[found].long())
    assert torch.equal(result.cost, result.l0)


@pytest.mark.parametrize("name", IN_SPACES)
def test_a_point_must_be_near_and_accepted(name):
    """Within ±0.4 of the input, and with a first feature that grew by no more than the second fell."""
    net, attack = network(6, 3), short(name, 60 if name.endswith("-min") else 15)
    judged = torch.zeros(8, dtype=torch.int64)
    x = torch.rand(8, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def accept(points: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
        judged.add_((clean[:, None] == x[None]).all(2).sum(0))
        return (points - clean)[:, :2].sum(1) <= 0

    result = attack.run(net, x, net(x).argmax(1), space=sz.Space(around=0.4, accept=accept), **how(attack, 3))
    moved = result.x_adv - x
    assert result.success.any() or name == "bb-dataset"  # which starts at other inputs, and these are far away
    assert (moved.abs() <= 0.4 + 1e-12).all()
    assert (moved[:, :2].sum(1) <= 0).all()
    assert result.judged is not None
    assert torch.equal(result.judged, judged)
    assert (result.outcome[~result.success] != sz.Outcome.FOUND).all()


def test_a_category_among_the_changes_becomes_another(tmp_path):
    """Where two changes were found, one of them a word, another word alone is found too; and sums of costs round."""
    x, y = (torch.from_numpy(each) for each in loans.table())
    held: dict[str, Any] = {}
    exec(loans.NET, held)
    (tmp_path / "space.toml").write_text(loans.SPACE)
    space = sz.Space.from_toml(tmp_path / "space.toml")
    result = sz.get("sigma-swap", queries=200).run(held["build"](), x, y, space=space)
    assert result.cost.tolist() == [1.0] * len(x)
    cheap = sz.Space(kind="binary", cost=0.1)
    net = torch.nn.Linear(3, 2).requires_grad_(False)
    net.weight.copy_(torch.tensor([[0.0] * 3, [1.0] * 3]))
    net.bias.copy_(torch.tensor([2.5, 0.0]))
    thrice = sz.get("corner").run(net, torch.zeros(1, 3), torch.tensor([0]), space=cheap)
    assert (thrice.l0.tolist(), thrice.asr_at_cost(0.3), thrice.asr_at_cost(0.29)) == ([3.0], 1.0, 0.0)


def tent(x):
    """The other class lies inside the range of the first feature, and at neither end."""
    score = 10 * (x[:, 0] - 0.42).abs() - 0.7 + 0.1 * x[:, 1:].sum(1)
    return torch.stack([score, 0 * score], 1)


def searching(name):
    """An attack with some hundred queries."""
    if name == "sparse-rs":
        return short(name, 3000)
    few = {"genetic": 10, "swap-search": 30, "sparse-rs-min": 150}  # some ask several times in a step
    return sz.get(name) if name.startswith("corner") else short(name, few.get(name, 100))


# These go to ends by their own rule, step by step or as projections, or start from a pool that has no other class.
TO_THE_ENDS = ("bb-dataset", *(name for name in IN_SPACES if name.startswith(("pgd-l0", "spgd"))))


@pytest.mark.parametrize("name", [name for name in IN_SPACES if name not in TO_THE_ENDS])
def test_values_inside_a_range_are_found(name):
    x = torch.tensor([[0.05, 0.2, 0.4, 0.1], [0.8, 0.1, 0.3, 0.5], [0.95, 0.3, 0.1, 0.2]], dtype=torch.float64)
    attack = searching(name)
    result = attack.run(tent, x, torch.zeros(3).long(), space=sz.Space(), **how(attack, 2))
    assert result.success.any()
    assert ((result.x_adv[result.success, 0] - 0.42).abs() < 0.07).all()


@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize("name", [name for name in IN_SPACES if name not in (*TO_THE_ENDS, "fmn")])
def test_rules_that_form_a_chain_are_kept_together(name, turn):
    """Only a success in the past will do: it needs a contact, which needs a day; in either order of the rules."""
    names = ["days", "contacts", "past=none", "past=failure", "past=success", "a", "b"]
    rules = [
        sz.Rule({"days": 1, "contacts": -872}, "<=", -1),
        sz.Rule({"contacts": 1, "days": -30}, "<=", 30),
        sz.Rule({"contacts": 1}, "<=", 0, when=sz.Rule({"past=none": 1}, ">=", 1)),
        sz.Rule({"contacts": 1, "past=none": 1}, ">=", 1),
    ]
    space = sz.Space(
        names=names,
        kind={"days": "integer", "contacts": "integer", **dict.fromkeys(names[2:], "binary")},
        lower={"days": -1},
        upper={"days": 871, "contacts": 30},
        one_hot={"past": names[2:5]},
        rules=rules[::turn],
    )
    model = torch.nn.Linear(7, 2).requires_grad_(False)
    model.weight.copy_(torch.tensor([[0.0] * 7, [0.0, 0.0, 0.0, 0.0, 3.0, 0.5, 0.5]]))
    model.bias.copy_(torch.tensor([2.9, 0.0]))
    attack = searching(name)
    x = torch.tensor([[-1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]]).repeat(2, 1)
    result = attack.run(model, x, torch.zeros(2).long(), space=space, **how(attack, 3))
    assert result.found.any()
    assert (result.x_adv[result.found][:, 4] == 1).all()
    assert (result.x_adv[result.found][:, 0] > -1).all()


def asked_twice(seen: list[torch.Tensor]) -> int:
    points = torch.cat(seen)
    return len(points) - len(torch.unique(points, dim=0))


@pytest.mark.parametrize("name", IN_SPACES)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_point_is_asked_about_twice(name, seed):
    """But for the two answers that verify a success, and for a gradient at a point of which the logits are known.

    Rows differ in a feature that the network does not look at.
    """
    plain = draw(random := Random(seed))
    x = numbered(plain, inputs(plain, random))
    net = network(len(plain), seed)
    net.get_parameter("0.weight")[:, -1] = 0
    seen: dict[bool, list[torch.Tensor]] = {False: [x[:0]], True: [x[:0]]}

    def model(points):
        seen[points.requires_grad].append(points.detach().clone())
        return net(points)

    attack = short(name, 100)
    result = attack.run(model, x, net(x).argmax(1), space=plain.space(), **how(attack, 3))
    assert asked_twice(seen[False]) <= 2 * len(x)
    assert asked_twice(seen[True]) == 0
    asked = {wanted: len(torch.cat(points)) for wanted, points in seen.items()}
    assert asked == {False: int((result.forwards - result.backwards).sum()), True: int(result.backwards.sum())}


@pytest.mark.parametrize("shape", [(8,), (1, 4, 4)])
def test_query_swap_asks_about_no_point_of_a_box_twice(shape):
    model, x, y = linear_problem(shape, 3, seed=3)
    seen: list[torch.Tensor] = []

    def counting(points):
        seen.append(points.detach().clone())
        return model(points)

    sz.get("query-swap", steps=300).run(counting, x, y)
    assert asked_twice(seen) <= 2 * len(x)


@pytest.mark.parametrize("name", ["sigma-swap", "sigma-zero", "query-swap", "corner", "saliency"])
def test_values_end_as_small_as_they_may(name):
    """The gain must reach 7,688 of 99,999; another number of changes is none, and `smallest=False` leaves the end."""
    model = torch.nn.Linear(3, 2, dtype=torch.float64).requires_grad_(False)
    model.weight.copy_(torch.tensor([[0.0] * 3, [0.0, 1 / 7688, 0.1]]))
    model.bias.copy_(torch.tensor([0.99999, 0.0]))
    given = {"names": ["age", "gain", "rate"], "kind": {"age": "integer", "gain": "integer"}, "upper": {"gain": 99999}}
    x, y = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([0])
    small, large = (sz.get(name).run(model, x, y, space=sz.Space(**given, smallest=way)) for way in (None, False))
    assert small.l0.item() == large.l0.item() == 1
    assert small.x_adv[0, 1].item() == 7688 < large.x_adv[0, 1].item()


def test_label_swap_begins_at_rows_of_a_pool():
    """Features may only be added, and nothing but all of the first ten at once will do: a harmless row has them."""
    x = torch.zeros(3, 40, dtype=torch.float64)
    x[:, 20:22] = 1

    def detector(points):
        score = 9.5 - points[:, :10].sum(1) + 2 * points[:, 10:20].sum(1)
        return torch.stack([-score, score], 1)

    pool = torch.cat([x, torch.eye(40, dtype=torch.float64)[:5], torch.eye(40, dtype=torch.float64)[:10].sum(0)[None]])
    added, y = sz.Space(kind="binary", direction="up"), torch.ones(3).long()
    assert not sz.get("label-swap", steps=100).run(detector, x, y, space=added).success.any()
    result = sz.get("label-swap", steps=100).run(detector, x, y, space=added, pool=pool)
    assert result.l0.tolist() == [10.0] * 3


def test_what_refuses_a_space_takes_ranges_of_rows_as_it_takes_bounds():
    net = network(6, 1)
    x = torch.rand(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4 - 1
    y, attack = net(x).argmax(1), short("ead", 15)
    one = attack.run(net, x, y, bounds=(-1, 3))
    same(one, attack.run(net, x, y, space=sz.Space(lower=-1, upper=3)))
