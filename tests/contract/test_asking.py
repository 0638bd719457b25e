"""How a model is asked: in its own eval mode, as often as the result says, and left as it was."""

import warnings
from collections import Counter

import pytest
import torch
from torch import nn

import sigmazero as sz

X = torch.rand(16, 12, generator=torch.Generator().manual_seed(3))


class Merged(nn.Module):
    """A layer whose second part counts in eval mode alone, such as merged low-rank weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.base, self.delta, self.merged = nn.Linear(12, 4), nn.Parameter(torch.randn(4, 12) * 3), False

    def train(self, mode: bool = True) -> "Merged":
        self.merged = not mode
        return super().train(mode)

    def forward(self, x):
        return self.base(x) + (x @ self.delta.T if self.merged else 0)


def modes(model: nn.Module) -> list[bool]:
    return [part.training for part in model.modules()]


@pytest.mark.parametrize("name", ["sigma-zero", "query-swap"])
@pytest.mark.parametrize("prepare", ["auto", "none"])
def test_a_model_is_searched_as_eval_makes_it(name, prepare):
    model, reference = nn.Sequential(Merged(), nn.Identity()).train(), Merged().eval()
    y = reference(X).argmax(1)
    result = sz.get(name, steps=80).run(model, X, y, hardware=sz.Hardware(prepare=prepare), batch_size=9)
    assert result.success.sum() > 8
    assert (reference(result.x_adv).argmax(1) != y)[result.success].all()
    assert not model[0].merged
    assert all(modes(model))


class Twice(nn.Module):
    """Two parts that share a layer."""

    def __init__(self) -> None:
        super().__init__()
        shared = Merged()
        self.first, self.second = nn.Sequential(shared), nn.Sequential(shared)

    def forward(self, x):
        return self.first(x) + self.second(x)


def test_every_module_gets_its_own_mode_back():
    model = Twice().eval()
    model.second.train()
    model.first[0].eval()  # the shared layer: in eval mode below a part in training mode
    before = modes(model)
    sz.get("sigma-zero", steps=3).run(model, X, torch.zeros(16, dtype=torch.long))
    assert modes(model) == before == [False, False, False, False, True]
    assert model.first[0].merged


def exported() -> nn.Module:
    batch = {0: torch.export.Dim.DYNAMIC}
    return torch.export.export(nn.Linear(12, 12).eval(), (X,), dynamic_shapes=(batch,)).module()


def frozen() -> nn.Module:
    made: nn.Module = torch.jit.freeze(torch.jit.trace(nn.Linear(12, 12).eval(), X))
    return made


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [exported, frozen])
def test_programs_without_modes_are_asked_too(make):
    """An exported program refuses to be put in a mode, a frozen script has none."""
    alone, inside = make(), nn.Sequential(make(), Merged())
    for model in (alone, inside):
        y = model(X).argmax(1)
        before = {part: part.training for part in model.modules() if hasattr(part, "training")}
        result = sz.get("sigma-zero", steps=40).run(model, X, y)
        assert result.success.any()
        assert {part: part.training for part in before} == before
    assert not inside[1].merged


class Cast(nn.Module):
    """A network that rounds by autocast, which the certifier refuses, or switches it off, which it takes."""

    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self.layer, self.enabled = nn.Linear(12, 4), enabled

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.enabled):
            return self.layer(x).float()


def test_a_refused_model_leaves_no_autocast_behind():
    before = torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()
    for enabled in (True, False):
        model = Cast(enabled).eval()
        y = model(X[:1]).argmax(1)
        if enabled:
            with pytest.raises(ValueError, match="bfloat16"):
                sz.certify(model, X[:1], y, up_to=1)
        else:
            assert sz.certify(model, X[:1], y, up_to=1).done.all()
        assert (torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()) == before


class Counting(nn.Module):
    """A network that a search would fold, with a counter that may be anything."""

    rows: torch.Tensor

    def __init__(self, how: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
        self.how, self.number, self.calls, self.counter = how, 0, list[int](), Counter[str]()
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.how == "number":
            self.number += len(x)
        elif self.how == "list":
            self.calls.append(len(x))
        elif self.how == "object":
            self.counter["rows"] += len(x)
        else:
            self.rows += len(x)
        return self.layers(x)

    @property
    def asked(self) -> int:
        return self.number + sum(self.calls) + self.counter["rows"] + int(self.rows)


@pytest.mark.parametrize("name", ["sigma-zero", "query-swap", "label-swap"])
@pytest.mark.parametrize("how", ["number", "list", "object", "buffer"])
def test_without_a_copy_a_model_sees_every_query_that_the_result_counts(how, name):
    model = Counting(how).eval()
    y = model.layers(X).argmax(1)
    result = sz.get(name, steps=20).run(model, X, y, hardware=sz.Hardware(prepare="none"), batch_size=7)
    assert model.asked == int(result.forwards.sum())


BLIND = sorted(name for name, attack in sz.ATTACKS.items() if attack.needs != "gradients")


class Remembering:
    """A model that keeps whom it was asked about and whether the answer was another class than the sample's."""

    def __init__(self, answer) -> None:
        torch.manual_seed(1)
        self.layer, self.answer = nn.Linear(12, 4).requires_grad_(False), answer
        self.y = self.layer(X).argmax(1)
        self.asked: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self, x):
        logits = self.answer(self.layer, x)
        self.asked += zip(x.clone(), logits.argmax(1), strict=True)
        return logits


def dropping(layer, x):
    return 4 * layer(nn.functional.dropout(x, 0.3))


def by_place(layer, x):
    """The first half of a batch is taken for class 3 more easily."""
    first = (torch.arange(len(x)) < len(x) // 2).float()
    return layer(x) + 0.3 * first[:, None] * nn.functional.one_hot(torch.tensor(3), 4)


def by_company(layer, x):
    return layer(x) - layer(x - 0.5).mean(0)


@pytest.mark.parametrize("answer", [dropping, by_place, by_company])
@pytest.mark.parametrize("name", BLIND)
def test_attacks_without_gradients_ask_a_second_time(name, answer):
    """What a model says at random, or by the place in the batch, is noticed, and no success if it does not hold."""
    model, attack = Remembering(answer), sz.get(name, steps=60)
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="SZ003"):
        result = attack.run(model, X, model.y, budget=3 if attack.kind == "budget" else None)
    assert "SZ003" in [finding.code for finding in result.findings]
    assert int(result.forwards.sum()) == len(model.asked)
    assert result.success.any()
    for row in (result.success & (result.outcome != sz.Outcome.ALREADY)).nonzero().flatten().tolist():
        said = [int(label) for point, label in model.asked if torch.equal(point, result.x_adv[row])]
        assert len(said) > 2
        assert model.y[row] not in said[-2:]


def louder(layer, x):
    """All logits grow and shrink together at random: the class stays."""
    return layer(x) * (0.7 + 0.6 * torch.rand(len(x), 1))


def test_random_answers_of_one_class_are_noticed_too():
    model = Remembering(louder)
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="SZ003"):
        result = sz.get("query-swap", steps=60).run(model, X, model.y)
    assert result.success.any()


def test_weights_need_no_gradient_while_a_model_is_asked():
    class Looking(nn.Linear):
        def forward(self, x):
            seen.add(self.weight.requires_grad)
            return super().forward(x)

    seen: set[bool] = set()
    model = Looking(12, 4)
    sz.get("sigma-zero", steps=3).run(model, X, torch.zeros(len(X), dtype=torch.long))
    assert seen == {False}
    assert model.weight.requires_grad


@pytest.mark.parametrize("name", BLIND)
def test_a_steady_model_is_asked_once_more_about_each_success_and_not_doubted(name):
    model, attack = Remembering(lambda layer, x: layer(x)), sz.get(name, steps=60)
    result = attack.run(model, X, model.y, budget=3 if attack.kind == "budget" else None)
    assert not result.findings
    assert not result.given_up.any()
    assert int(result.forwards.sum()) == len(model.asked)
    found = result.l0.isfinite().nonzero().flatten().tolist()
    last = [point for point, _ in model.asked[-2 * len(found) :]]
    assert all(sum(torch.equal(point, result.x_adv[row]) for point in last) == 2 for row in found)


@pytest.mark.parametrize("queries", [40, 60, 300])
@pytest.mark.parametrize("answer", [dropping, lambda layer, x: layer(x)])
def test_the_second_question_stays_within_a_limit(answer, queries):
    model = Remembering(answer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = sz.get("query-swap", queries=queries).run(model, X, model.y)
    assert int(result.forwards.max()) <= queries
    assert int(result.forwards.sum()) == len(model.asked)


@pytest.mark.parametrize(("answer", "words"), [({"first": X, "second": X}, "first, second"), ("no tensor", "str")])
def test_an_answer_without_logits_is_described(answer, words):
    with pytest.raises(TypeError, match=words):
        sz.get("fmn", steps=2).run(lambda x: answer, X, torch.zeros(len(X), dtype=torch.long))


def test_every_success_holds_in_both_formats_and_the_checks_cost_four_queries():
    """Nothing is confirmed while a search goes on: two clean checks, a query for each step, two checks at the end."""
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)).requires_grad_(False)
    x = torch.rand(100, 20, generator=torch.Generator().manual_seed(2))
    y = net(x).argmax(1)
    attack = sz.get("sigma-zero", steps=100)
    with torch.autocast("cpu", torch.bfloat16):
        result = attack.run(net, x, y)
        for size in (1, 7, 100):
            assert (torch.cat([net(part) for part in result.x_adv.split(size)]).argmax(1) != y)[result.success].all()
    assert (net(result.x_adv).argmax(1) != y)[result.success].all()
    assert result.success.float().mean() > 0.9
    assert (result.forwards <= 104 + 2 * result.given_up).all()
    assert (result.forwards <= 104).float().mean() > 0.95
    coarse = attack.run(net, x, y, hardware=sz.Hardware(precision="bf16"))
    assert (coarse.forwards[coarse.given_up == 0] <= 104).all()


class Single(nn.Module):
    """A network that cannot be copied and notes under which autocast it is asked."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.casts = nn.Linear(12, 4), set[bool]()

    def __deepcopy__(self, memo):
        raise TypeError("there is one of me")

    def forward(self, x):
        self.casts.add(torch.is_autocast_enabled("cpu"))
        return self.layer(x)


@pytest.mark.parametrize(("precision", "casts"), [("bf16", {True, False}), ("fp32", {False})])
def test_a_model_without_a_copy_is_searched_by_autocast_where_bf16_is_asked_for(precision, casts):
    model = Single().eval()
    y = model.layer(X).argmax(1)
    result = sz.get("sigma-zero", steps=30).run(model, X, y, hardware=sz.Hardware(precision=precision))
    assert model.casts == casts
    assert result.success.any()
    assert (model.layer(result.x_adv).argmax(1) != y)[result.success].all()


def test_a_surrogate_is_asked_about_more_samples_than_fit_at_once():
    layer = torch.nn.Linear(6, 3).requires_grad_(False).eval()
    layer.weight.copy_(torch.randn(3, 6, generator=torch.Generator().manual_seed(5)))
    x = torch.rand(300, 6, generator=torch.Generator().manual_seed(6))
    result = sz.QuerySwap(queries=24, surrogate=layer).run(layer, x, layer(x).argmax(1))
    assert result.success.float().mean() > 0.9


class Normed(nn.Module):
    """A network with batch norms that have seen data; it counts its calls, and a copy counts its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        first = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
        self.layers = nn.Sequential(*first, nn.Linear(144, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
        for _ in range(20):
            self.layers(4 * torch.rand(16, 1, 8, 8) - 1)
        self.calls = 0
        self.eval().requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layers(x)


def test_the_search_asks_a_copy_with_folded_batch_norms():
    x, attack = torch.rand(16, 1, 8, 8, generator=torch.Generator().manual_seed(1)), sz.get("sigma-zero", steps=60)
    changes = {}
    for prepare in ("fold", "none"):
        model = Normed()
        y = model(x).argmax(1)
        result = attack.run(model, x, y, hardware=sz.Hardware(prepare=prepare))
        assert (model.calls < 20) == (prepare == "fold")
        assert result.success.all()
        assert (model(result.x_adv).argmax(1) != y).all()
        changes[prepare] = float(result.l0.double().mean())
    assert changes["fold"] == pytest.approx(changes["none"], rel=0.1)
