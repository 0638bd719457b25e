"""What the doctor says of a space, judged by all rows."""

from dataclasses import replace

import pytest
import torch

import sigmazero as sz
from sigmazero.models.doctor import examine
from sigmazero.models.doctor_space import examine_space
from tests.helpers import loans

X = torch.from_numpy(loans.table()[0])


@pytest.fixture
def space(tmp_path):
    loans.write(tmp_path)
    return sz.Space.from_toml(tmp_path / "loan.toml")


def codes(space, x=X):
    return [(found.code, found.severity) for found in examine_space(space, x)]


def test_a_sound_space(space):
    assert codes(space) == []


def test_what_looks_wrong_is_named(space):
    outside = X.clone()
    outside[3, 0] = 400
    (found,) = examine_space(space, outside)
    assert (found.code, found.severity) == ("SZ017", "error")
    assert "feature 'age' of input row 3 is 400" in found.detail
    assert found.fix == "widen the ends or correct the input"
    (found,) = examine_space(replace(space, upper={"age": 90, "gain": 1e9}), X)
    assert found.code == "SZ019"
    assert found.detail == "Feature 'gain' may go from 0 to 1e+09 and the rows go from 0 to 38."
    (found,) = examine_space(replace(space, cost={"gain": 1e6}), X)
    assert (found.code, found.detail) == ("SZ020", "Feature 'gain' costs 1e+06 and 'age' costs 1.")


def test_pixels_have_one_unit_and_tables_do_not():
    images = torch.rand(8, 1, 3, 3)
    images[..., 0, 0] /= 1000  # as at the border of a digit
    assert codes(sz.Space(), images) == []
    assert codes(sz.Space(), images.flatten(1)) == [("SZ019", "warning")]


def test_features_that_no_row_may_change():
    space = sz.Space(names=["a", "b"], direction={"a": "up"}, lower=0, upper=1)
    assert codes(space, torch.tensor([[1.0, 0.5]] * 3)) == [("SZ018", "warning")]
    fixed = sz.Space(names=["a", "b"], direction="none")
    assert codes(fixed, torch.rand(3, 2)) == [("SZ018", "error")]


def test_the_space_is_examined_with_the_model_and_instead_of_the_box(space):
    model = torch.nn.Linear(6, 2)
    labels = torch.zeros(12, dtype=torch.int64)
    assert "SZ006" in {found.code for found in examine(model, X, labels)}
    found = {found.code for found in examine(model, X, labels, space=replace(space, cost={"gain": 1e6}))}
    assert "SZ006" not in found
    assert "SZ020" in found
