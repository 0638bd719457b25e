"""The cascade: never weaker than a member, and nothing claimed that does not hold."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.auto import VERSIONS
from sigmazero.core.domain import count_features, count_pixels
from tests.auto.conftest import MEMBERS, MINIMUM, Counted, custom, problem
from tests.helpers.networks import linear_problem


@pytest.mark.parametrize("members", [MEMBERS, VERSIONS["quick"].budget], ids=["three", "quick"])
@pytest.mark.parametrize(("k", "unit"), [(1, "feature"), (2, "pixel"), (6, "feature")])
def test_at_a_budget_it_fools_exactly_what_some_member_fools(k, unit, members):
    net, x, y = problem(kind="rgb")
    auto = custom(net, k, members, unit=unit)
    x_adv = auto.run_standard_evaluation(x, y, bs=7)
    alone = [member.run(net, x, y, budget=k, unit=unit) for member in members]
    fooled = torch.stack([result.success & (result.changes <= k) for result in alone])
    report = auto.report
    assert report.robust_accuracy() == float((~fooled.any(0)).double().mean())
    assert all(report.robust_accuracy() <= 1 - result.asr(k) for result in alone)
    assert torch.equal(report.result.success, fooled.any(0))
    count = count_pixels if unit == "pixel" else count_features
    assert (count(x_adv, x) <= k).all()
    assert torch.equal(net(x_adv).argmax(1) != y, fooled.any(0))
    assert torch.equal(x_adv[~fooled.any(0)], x[~fooled.any(0)])
    # Each point is that of the first member which found one.
    for row, name in enumerate(report.found_by):
        if name is not None:
            first = auto.report.members.index(name)
            assert not fooled[:first, row].any()
            assert torch.equal(x_adv[row], alone[first].x_adv[row])


def test_without_a_budget_it_has_every_sample_s_fewest_changes():
    net, x, y = problem()
    auto = custom(net, None)
    x_adv = auto.run_standard_evaluation(x, y, bs=5)
    alone = torch.stack([member.run(net, x, y).l0 for member in MINIMUM])
    assert torch.equal(auto.report.result.l0, alone.amin(0))
    assert torch.equal(count_features(x_adv, x).double(), alone.amin(0).double())
    assert len(set(auto.report.found_by)) > 2
    for k in (0, 1, 2, 5, 64):
        assert auto.report.robust_accuracy(k) == float((alone.amin(0) > k).double().mean())
        assert all(auto.report.robust_accuracy(k) <= float((l0 > k).double().mean()) for l0 in alone)
    assert auto.report.clean_accuracy == 22 / 24


def test_individual_runs_are_those_of_the_members():
    net, x, y = problem()
    found = custom(net, 3).run_standard_evaluation_individual(x, y, bs=9, return_labels=True)
    assert list(found) == [member.name for member in MEMBERS]
    for member in MEMBERS:
        alone = member.run(net, x, y, budget=3)
        counts = alone.success & (alone.l0 <= 3)
        x_adv, labels = found[member.name]
        assert torch.equal(x_adv, torch.where(counts[:, None, None, None], alone.x_adv, x))
        assert torch.equal(labels, net(x_adv).argmax(1))


@pytest.mark.parametrize("eps", [1, None])
def test_fooled_samples_leave_and_every_query_is_counted(eps):
    net, x, y = problem()
    model = Counted(net)
    auto = custom(model, eps)
    auto.run_standard_evaluation(x, y)
    report = auto.report
    assert model.rows == int(report.result.forwards.sum())
    assert report.attacked[0].all()
    gone = report.l0[0] <= (1 if eps is None else eps)
    assert 2 < int(gone.sum()) < 24
    assert torch.equal(report.attacked[1], ~gone)
    assert (report.queries[1][gone] == 0).all()
    assert int(report.queries.sum()) == int((report.result.forwards + report.result.backwards).sum())


def test_a_member_is_not_asked_when_nothing_is_left():
    net, x, y = problem()
    auto = custom(net, 64)
    auto.run_standard_evaluation(x, y)
    assert auto.report.robust_accuracy() == 0
    assert not auto.report.attacked[1:].any()
    assert "fooled 0 of 0" in auto.report.line(2)


class Rounded(nn.Module):
    """Only the rounded inputs count: the gradient is zero everywhere, but the logits tell how near one is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 3, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5).sign().detach() @ self.weight + 0 * x.flatten(1)[:, :3]


@pytest.mark.parametrize("eps", [6, None])
def test_masked_gradients_are_named(eps):
    net = Rounded()
    x = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    auto = custom(net, eps)
    with pytest.warns(UserWarning, match="SZ014 error: A black-box attack beat the gradient-based ones") as caught:
        auto.run_standard_evaluation(x, net(x).argmax(1))
    assert caught[0].filename == __file__
    (finding,) = auto.report.findings
    beaten = auto.report.found_by.count(MINIMUM[2].name if eps is None else MEMBERS[2].name)
    assert beaten > 2
    assert f"{beaten} of 20 samples" in finding.detail
    assert "SZ014" in str(auto.report)


def test_no_warning_without_cause():
    net, x, y = problem()
    auto = custom(net, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        auto.run_standard_evaluation(x, y)
    assert auto.report.findings == ()
    # A black-box member that comes first beats nobody: the others were not asked.
    masked = Rounded()
    first = custom(masked, 6, MEMBERS[::-1])
    first.run_standard_evaluation(x.float(), masked(x.float()).argmax(1))
    assert first.report.findings == ()
    assert "sparse-rs" in first.report.found_by


def test_shape_type_device_and_labels_are_the_caller_s():
    net, x, y = problem(6, dtype=torch.float32)
    x_adv, labels = custom(net, 3).run_standard_evaluation(x, y.int(), return_labels=True)
    assert (x_adv.dtype, x_adv.shape, x_adv.device) == (torch.float32, x.shape, x.device)
    assert labels.dtype == torch.int32
    assert torch.equal(labels, net(x_adv).argmax(1).int())
    assert custom(net, 3).clean_accuracy(x, y, bs=4) == 4 / 6
    with torch.no_grad():
        assert torch.equal(custom(net, 3).run_standard_evaluation(x, y), x_adv)
    assert torch.equal(x, problem(6, dtype=torch.float32)[1])


def test_bounds_that_a_member_cannot_search_are_refused_before_the_first_one_runs():
    net, x, y = problem()
    counted = Counted(net)
    with pytest.raises(ValueError, match="sparse-rs moves features to the ends of the box: it needs finite bounds"):
        custom(counted, 3, bounds=(0, torch.inf)).run_standard_evaluation(x, y)
    assert counted.rows == 0


def test_other_bounds():
    net, x, y = problem(8)
    wide = custom(lambda z: net((z + 1) / 2), 3, bounds=(-1, torch.ones(1, 8, 8)))
    x_adv = wide.run_standard_evaluation(2 * x - 1, y)
    assert x_adv.amin() >= -1
    assert x_adv.amax() <= 1
    with pytest.raises(ValueError, match="for one sample"):
        custom(net, 3, bounds=(torch.zeros(8, 1, 8, 8), 1)).run_standard_evaluation(x, y)


def test_rows_without_finite_answers_are_neither_right_nor_fooled():
    net, x, y = problem(8)
    x[0] = 0.0
    auto = custom(lambda z: torch.where((z == 0).flatten(1).all(1)[:, None], torch.nan, net(z)), None)
    auto.run_standard_evaluation(x, y)
    assert not auto.report.result.success[0]
    assert auto.report.clean_accuracy == 5 / 8
    assert auto.report.robust_accuracy(64) == 0
    assert auto.report.attacked[:, 0].tolist() == [True, False, False]


def test_no_inputs_is_an_empty_report():
    net, x, y = problem()
    auto = custom(net, 3)
    assert auto.run_standard_evaluation(x[:0], y[:0]).shape == (0, 1, 8, 8)
    assert auto.report.found_by == []
    assert str(auto.report)


def test_lines_are_printed_and_logged(capsys, tmp_path):
    net, x, y = problem(8)
    auto = sz.SparseAutoAttack(net, eps=3, version="quick", log_path=tmp_path / "log.txt")
    auto.run_standard_evaluation(x, y)
    said = capsys.readouterr().out
    assert said == (tmp_path / "log.txt").read_text(encoding="utf-8") == f"{auto.report}\n"
    assert said.startswith("quick 1: 8 samples, at most 1,000 queries for each\n")
    assert re.search(r"\nquick \d+, 8 samples, at most 3 features: clean accuracy 75\.0%\nsigma-swap: robust acc", said)
    custom(net, 3, log_path=tmp_path / "log.txt").run_standard_evaluation(x, y)
    assert capsys.readouterr().out == ""
    assert (tmp_path / "log.txt").read_text(encoding="utf-8").count("clean accuracy") == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_begins_with_gradients_and_ends_with_a_black_box(version):
    for members in (VERSIONS[version].budget, VERSIONS[version].minimum, VERSIONS[version].small or ()):
        uses = [member.needs == "gradients" for member in members]
        assert uses == sorted(uses, reverse=True)
        assert not members or (uses[0] and not uses[-1])
    assert all(member.kind == "minimum-norm" for member in VERSIONS[version].minimum)


@pytest.mark.parametrize("eps", [2, None])
def test_an_evaluation_can_be_repeated(eps):
    net, x, y = problem(4)
    first, second = (sz.SparseAutoAttack(net, eps=eps, version="quick", verbose=False) for _ in range(2))
    assert torch.equal(first.run_standard_evaluation(x, y), second.run_standard_evaluation(x, y))
    assert first.report.version == f"quick {VERSIONS['quick'].number}"


def test_the_page_names_every_member_with_its_cost():
    page = (Path(__file__).parents[2] / "docs" / "auto.md").read_text(encoding="utf-8")
    for version in VERSIONS.values():
        cells = [f"`{version.name}` {version.number}", *map(_cell, (version.budget, version.minimum))]
        if version.small is not None:
            assert f"| {_cell(version.small[4:])} |" in page
        assert f"| {' | '.join(cells)} |" in page


def _cell(members):
    costs = [
        f"{member.queries:,} queries"
        if member.name == "sigma-swap"
        else f"{member.steps:,} {'queries' if member.needs != 'gradients' and member.name[:6] != 'corner' else 'steps'}"
        for member in members
    ]
    return ", ".join(f"`{member.name}` ({cost})" for member, cost in zip(members, costs, strict=True))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"norm": "Linf", "eps": 8 / 255}, "norm='Linf'.*package autoattack"),
    ({"eps": 8 / 255}, r"eps=0\.03.* must be a whole number of changes"),
    ({"eps": 0}, "eps=0 must be"),
    ({"eps": True}, "eps=True must be"),
    ({"is_tf_model": True}, "is_tf_model=True"),
    ({"version": "plus"}, "version='plus' is not one of 'standard', 'quick', 'rand', 'custom'"),
    ({"attacks_to_run": ["fmn"]}, 'attacks_to_run needs version="custom"'),
    ({"version": "custom"}, "attacks_to_run="),
    ({"version": "custom", "attacks_to_run": "fmn"}, "got 'fmn'"),
    ({"version": "custom", "attacks_to_run": ["fmn", "fmn"]}, "twice: fmn, fmn"),
    ({"version": "custom", "attacks_to_run": ["sparse-rs"]}, "sparse-rs needs a budget"),
]


@pytest.mark.parametrize(("options", "said"), WRONG)
def test_wrong_questions_are_named(options, said):
    with pytest.raises(ValueError, match=said):
        sz.SparseAutoAttack(problem(4)[0], **options)


def test_wrong_calls_are_named():
    net, x, y = problem(4)
    auto = custom(net, 3)
    with pytest.raises(RuntimeError, match="nothing was evaluated yet"):
        _ = auto.report
    with pytest.raises(ValueError, match="bs=0"):
        auto.run_standard_evaluation(x, y, bs=0)
    with pytest.raises(ValueError, match="outside the bounds"):
        auto.run_standard_evaluation(x + 1, y)
    with pytest.raises(ValueError, match=r"label 9 \(id 0\) does not exist"):
        auto.clean_accuracy(x, y * 0 + 9)
    with pytest.raises(KeyError, match="did you mean"):
        custom(net, 3, ["sigma-zer"])
    auto.run_standard_evaluation(x, y)
    with pytest.raises(ValueError, match="k=5 was not searched, only eps=3"):
        auto.report.robust_accuracy(5)
    fewest = custom(net, None)
    fewest.run_standard_evaluation(x, y)
    with pytest.raises(ValueError, match="needs a number of changes"):
        fewest.report.robust_accuracy()


def test_the_page_names_the_versions_as_they_are():
    page = (Path(__file__).parents[2] / "docs" / "auto.md").read_text(encoding="utf-8")
    for version in VERSIONS.values():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{version.name}` {version.number} |"))
        assert re.findall(r"`([a-z0-9-]+)` \(", row) == [m.name for m in (*version.budget, *version.minimum)]


def test_the_other_names_of_autoattack():
    model, x, y = linear_problem((12,), 5)
    auto = sz.SparseAutoAttack(model, eps=3, version="quick", verbose=False, seed=4)
    assert torch.equal(auto.get_logits(x), model(x))
    assert auto.get_seed() == 4
    assert auto.attacks_to_run == ["sigma-swap", "sparse-rs"]
    auto.attacks_to_run = ["sigma-zero"]
    assert str(auto.version) == "custom 0"
    auto.run_standard_evaluation(x, y)
    assert auto.report.result.success.any()
    auto.set_version("quick")
    assert auto.attacks_to_run == ["sigma-swap", "sparse-rs"]
