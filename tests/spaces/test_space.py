"""Spaces: what they refuse, what is legal in them, and how they are read and written."""

import re
from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.spaces.file import parse

NAMES = ["age", "sex", "gain", "job=a", "job=b", "job=c"]


def credit(**more: Any) -> sz.Space:
    given = {
        "names": NAMES,
        "kind": {"age": "integer", "sex": "binary", "job=a": "binary", "job=b": "binary", "job=c": "binary"},
        "lower": {"age": 17, "gain": 0},
        "upper": {"age": 90, "gain": 1000},
        "direction": {"age": "up", "sex": "none"},
        "cost": {"gain": 3},
        "one_hot": {"job": ["job=a", "job=b", "job=c"]},
    }
    return sz.Space(**given | more)


ROWS = torch.tensor([[30.0, 1.0, 0.5, 0.0, 1.0, 0.0], [90.0, 0.0, 999.0, 1.0, 0.0, 0.0]])
LABELS = torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"upper": {"age": 10}}, "lower=17 lies above upper=10 for feature 'age'; swap them"),
        ({"upper": {"age": 17.5}, "lower": {"age": 17.2}}, "feature 'age' has no legal value between 17.2 and 17.5"),
        ({"lower": {"age": float("nan")}}, "lower=nan of feature 'age' must be a number"),
        ({"cost": {"gain": 0}}, "cost=0 of feature 'gain' must be a finite number greater than 0"),
        ({"cost": {"gian": 2}}, "there is no feature 'gian'; did you mean 'gain'?"),
        ({"cost": {"job=a": 2}}, "group 'job' is of unequal features: 'job=a' costs 2, 'job=b' costs 1"),
        ({"direction": {"job=a": "none"}}, "group 'job' is of unequal features: give all of a one-hot group direction"),
        ({"direction": {"age": "upwards"}}, "direction='upwards' of feature 'age' is not one of both, up, down, none"),
        ({"kind": {"age": "number"}}, "kind='number' of feature 'age' is not one of real, integer, binary, values"),
        ({"one_hot": {"job": ["age", "sex"]}}, "group 'job' is of unequal features: 'age' is integer"),
        ({"tied": {"two": ["age", "job=a"]}}, "feature 'job=a' is in 'job' and 'two'; leave it in one group"),
        ({"kind": {"age": "values"}}, "feature 'age' has kind 'values' but no values"),
        ({"names": [*NAMES[:-1], "age"]}, "two features are called 'age'"),
        ({"names": NAMES[:-1]}, "there is no feature 'job=c'"),
    ],
)
def test_contradictions_are_named(wrong, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        make_problem(ROWS, LABELS, space=credit(**wrong))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([16, 1, 0, 0, 1, 0], "feature 'age' of input row 0 is 16, which is not between 17 and 90; widen the ends"),
        ([30.5, 1, 0, 0, 1, 0], "feature 'age' of input row 0 is 30.5, which is no multiple of 1; round the inputs"),
        ([30, 1, 0, 1, 1, 0], "row 0 the one-hot group 'job' (with feature 'job=a') sums to 2; exactly one"),
        ([30, 1, 0, 0, 0, 0], "sums to 0"),
    ],
)
def test_an_input_outside_its_own_space_is_named(row, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        make_problem(torch.tensor([row], dtype=torch.float32), LABELS[:1], space=credit())
    assert "\n" not in str(error.value)


def test_what_does_not_go_together():
    with pytest.raises(ValueError, match="bounds and space are both given"):
        make_problem(ROWS, LABELS, space=credit(), bounds=(0, 2))
    with pytest.raises(ValueError, match="the mask frees a part of one-hot group 'job'"):
        make_problem(ROWS, LABELS, space=credit(), mask=torch.tensor([True, True, True, True, True, False]))
    with pytest.raises(ValueError, match="directions of 3 samples for 2 inputs"):
        make_problem(ROWS, LABELS, space=credit(direction=[["none"] * 6] * 3))
    with pytest.raises(TypeError, match="space is a dict"):
        make_problem(ROWS, LABELS, space={"lower": 0})
    images = torch.zeros(2, 3, 4, 4)
    with pytest.raises(ValueError, match=r"make pixels groups with Space.pixels\(shape\)"):
        make_problem(images, LABELS, space=sz.Space.rows((3, 4, 4)), unit="pixel")


def test_written_and_read_again(tmp_path):
    space = credit(values={"gain": [0.5, 999.0, 10.0]}, grid={"age": 2.0}, lower={"age": 18}, around={"age": 6})
    (tmp_path / "space.toml").write_text(space.to_toml())
    again = sz.Space.from_toml(tmp_path / "space.toml")
    one, two = space.columns((6,)), again.columns((6,))
    for name in ("lower", "upper", "around", "times", "per", "rise", "fall", "cost"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    assert (one.kind, one.groups) == (two.kind, two.groups)
    assert {k: v.tolist() for k, v in one.tables.items()} == {k: v.tolist() for k, v in two.tables.items()}
    (tmp_path / "image.toml").write_text('grid = "1/255"\ncost = 2\n')
    assert sz.Space.from_toml(tmp_path / "image.toml").columns((4,)).per.tolist() == [255.0] * 4
    (tmp_path / "pixels.toml").write_text(sz.Space.pixels((2, 1, 2), grid=0.5).to_toml())
    assert len(sz.Space.from_toml(tmp_path / "pixels.toml").columns((2, 1, 2)).groups) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("feature = 3\n", ":1: feature = 3"),
        ("[feature]\nage = 3\n", ":2: age = 3"),
        ("[group]\njob = 3\n", ":2: job = 3"),
        ("derived = 3\n", ":1: derived = 3"),
        ("rule = [3]\n", ":1: rule.0 = 3"),
        ("[feature.age]\nlow = 3\n", ":2: unknown key 'low'; did you mean 'lower'"),
        ("[feature.age]\nupper = -3\n", "lower=0 lies above upper=-3 for feature 'age'"),
        ('[feature.age]\n[group.job]\none_hot = ["aeg"]\n', "there is no feature 'aeg'; did you mean 'age'?"),
        ('grid = "1/none"\n', "'1/none' is no fraction"),
        ("cost = [1, ", "not TOML"),
        ("cost = 2\n[feature.age]\ncost = 3\n", "cost is given for all features and for 'age'"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, text, words):
    (tmp_path / "space.toml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        sz.Space.from_toml(tmp_path / "space.toml")
    assert "\n" not in str(error.value)


def test_a_draft_from_data():
    rows = np.array([[1, 0.5, 0, 1, 0, 7], [0, 0.25, 1, 0, 0, 3], [0, 0.75, 0, 0, 1, 5]])
    space = sz.Space.infer(rows)
    columns = space.columns((6,))
    assert columns.kind == ["binary", "real", "binary", "binary", "binary", "integer"]
    assert [group.members for group in columns.groups] == [(2, 3, 4)]
    assert (columns.lower[5], columns.upper[5]) == (3, 7)
    make_problem(torch.tensor(rows), torch.zeros(3, dtype=torch.int64), space=space)
    with pytest.raises(ValueError, match="feature 1 of row 0 is NaN or Inf"):
        sz.Space.infer([[0.0, float("nan")]])
    bytes_of = torch.arange(24).view(2, 1, 3, 4)
    assert sz.Space.infer(bytes_of / 255).to_toml() == sz.Space.image8().to_toml()  # not a line for each pixel
    assert sz.Space.infer(bytes_of / 254).to_toml() == sz.Space().to_toml()
    assert sz.Space.infer(bytes_of - 3.0).to_toml() == "lower = -3\nupper = 20\n"


def test_accept_returns_a_boolean_for_each_point():
    torch.manual_seed(0)
    net, x = torch.nn.Linear(3, 2), torch.zeros(2, 3)
    with pytest.raises(ValueError, match="return one boolean per point"):
        sz.get("corner").run(net, x, net(x).argmax(1), space=sz.Space(kind="binary", accept=lambda a, b: a))


def test_ends_of_finite_sets_are_their_own_unless_said():
    sets = {0: [-3, 0, 7], 1: [-3, 0, 7]}
    for lower, upper, expected in (
        (0.0, 1.0, ([-3, -3], [7, 7])),
        ({0: 0}, {0: 7}, ([0, -3], [7, 7])),
        (np.array([-1.0, 0.0]), np.array([9.0, 1.0]), ([-1, 0], [9, 1])),
    ):
        columns = sz.Space(values=sets, lower=lower, upper=upper).columns((2,))
        assert (columns.lower.tolist(), columns.upper.tolist()) == expected


def test_a_binary_feature_keeps_the_ends_that_are_said_of_it():
    space = sz.Space(kind="binary", upper={0: 0}, lower={2: 1})
    columns = space.columns((3,))
    assert (columns.lower.tolist(), columns.upper.tolist()) == ([0, 0, 1], [0, 1, 1])
    both = sz.Space(names=["age", "sex"], kind={"age": "integer", "sex": "binary"}, lower=17, upper=90).columns((2,))
    assert (both.lower[1], both.upper[1]) == (0, 1)  # one value for all is not meant for it
    draft = sz.Space.infer([[0, 3], [0, 5]]).columns((2,))  # a flag that no row has may still be set
    assert (draft.lower.tolist(), draft.upper.tolist()) == ([0, 3], [1, 5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_so_many_steps_around_an_input_are_so_many_steps(dtype):
    x = torch.arange(256, dtype=dtype)[None] / 255
    problem = make_problem(x, torch.tensor([0]), space=sz.Space.image8(around=8 / 255))
    levels = torch.stack([problem.domain.user_lower[0], problem.domain.user_upper[0]]).mul(255).round()
    whole = torch.arange(256, dtype=dtype)
    assert torch.equal(levels, torch.stack([(whole - 8).clamp(min=0), (whole + 8).clamp(max=255)]))


@pytest.mark.parametrize("step", [float(np.float32(1 / 255)), 0.00392157])
def test_a_step_of_few_digits_is_the_fraction_it_stands_for(step):
    columns = sz.Space(grid=step).columns((1,))
    assert (columns.times[0], columns.per[0]) == (1, 255)


def test_a_category_of_one_word_stays():
    space = sz.Space(names=["a", "b", "c"], kind="binary", one_hot={"only": ["b"]})
    model = torch.nn.Linear(3, 2).requires_grad_(False)
    model.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, -9.0, 1.0]]))
    model.bias.copy_(torch.tensor([0.0, 7.5]))
    x, y = torch.tensor([[0.0, 1.0, 0.0]]), torch.tensor([0])
    for attack in ("corner", "sigma-swap"):
        result = sz.get(attack).run(model, x, y, space=space)
        assert result.x_adv.tolist() == [[1.0, 1.0, 1.0]]


def test_a_space_has_one_text_however_numbers_are_written():
    spaces = [
        sz.Space(names=["é😀", "b\x7f"], upper=upper, cost={"é😀": cost}) for upper, cost in ((90, 2), (90.0, 2.0))
    ]
    one, other = (space.to_toml() for space in spaces)
    assert one == other
    assert parse(one).names == ["é😀", "b\x7f"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"names": "ab"}, "names has 'ab'; give a sequence of texts"),
        ({"names": [1, 2]}, "names has 1; give a sequence of texts"),
        ({"one_hot": [["a", "b"]]}, "one_hot is a list; write it as {group: [features]}"),
        ({"one_hot": {"job": "ab"}}, "one_hot of group 'job' is 'ab'; give a list of features"),
        ({"tied": {"job": [["a"]]}}, "there is no feature ['a']; give its name or its index"),
        ({"values": [1, 2]}, "values is [1, 2]; write it by feature"),
        ({"values": {"a": ["x"]}}, "values of feature 'a' must be one or more finite numbers"),
        ({"lower": {"a": 17}}, "lower=17 lies above upper=1 for feature 'a'"),
        ({"grid": 0.5, "kind": "integer"}, "grid=0.5 of feature 'a' is no whole number"),
    ],
)
def test_what_is_of_another_kind_is_named(given, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        sz.Space(**{"names": ["a", "b"]} | given)


def test_a_patch_has_a_size():
    with pytest.raises(ValueError, match=re.escape("size=0 of a patch must be a whole number of pixels, 1 or more")):
        sz.Space.patches((3, 4, 4), 0)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([1000000.25, 0.0], "feature 'a' of input row 0 is 1e+06, which is no multiple of 1 (it is 0.25 off)"),
        ([1.0, float("nan")], "input row 0 holds NaN or Inf in feature 'b'; clean the data first"),
    ],
)
def test_large_numbers_and_nan_are_named(row, words):
    space = sz.Space(names=["a", "b"], kind={"a": "integer"}, upper={"a": 2e6})
    with pytest.raises(ValueError, match=re.escape(words)):
        make_problem(torch.tensor([row]), torch.tensor([0]), space=space)


def test_a_file_keeps_ends_that_are_only_usual_elsewhere():
    """A finite set and a derived feature have other ends where none are said, a flag has its own."""
    space = sz.Space(
        names=["set", "sum", "flag", "age"],
        kind={"flag": "binary", "age": "integer"},
        values={"set": [-1, 0, 1, 2]},
        lower={"set": 0, "age": 17},
        upper={"set": 1, "sum": 1, "age": 90},
        derived={"sum": {"set": 1}},
    )
    wide = sz.Space(names=["flag", "age"], kind={"flag": "binary", "age": "integer"}, lower=17, upper=90)
    for one in (space, wide):
        shape = (len(one.names or ()),)
        columns, again = one.columns(shape), parse(one.to_toml()).columns(shape)
        assert again.lower.tolist() == columns.lower.tolist()
        assert again.upper.tolist() == columns.upper.tolist()


def test_a_list_of_equal_values_is_one_value():
    spellings = [sz.Space(kind="binary", cost=2), sz.Space(kind=["binary"] * 3, cost=np.array([2.0, 2.0, 2.0]))]
    assert len({space.to_toml() for space in spellings}) == 1


def test_a_file_without_names_holds_no_options_by_feature():
    with pytest.raises(ValueError, match="a file needs names for features with cost of their own; pass names="):
        sz.Space(cost={0: 2}).to_toml()


def test_values_that_single_precision_rounds_are_legal():
    """1,234,567.3 is 1,234,567.25 in float32: that is its value, and no success is given up for it."""
    model = torch.nn.Linear(1, 2).requires_grad_(False)
    model.weight.copy_(torch.tensor([[0.0], [1.0]]))
    model.bias.copy_(torch.tensor([1e6, 0.0]))
    space = sz.Space(values={0: [0, 1234567.3]})
    there = sz.get("corner").run(model, torch.zeros(1, 1), torch.tensor([0]), space=space)
    back = sz.get("corner").run(model, there.x_adv, torch.tensor([1]), space=space)
    assert (there.x_adv.item(), back.x_adv.item()) == (1234567.25, 0.0)
