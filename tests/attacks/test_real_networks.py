"""σ-zero on the networks of the paper, where their weights are at hand."""

import pytest
import torch

import sigmazero as sz
from sigmazero import data, models

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("code", "mean"), [("M1", 21.15), ("M2", 13.55)])
def test_sigma_zero_is_as_strong_as_the_authors_code(code, mean, shared_data):
    """The mean of their code on the first 500 images, 100 steps; 60 of them tell it within a fifth."""
    model = models.load(code, model_dir=shared_data)
    rows = data.load("mnist", rows="0:60", data_dir=shared_data)
    result = sz.get("sigma-zero", steps=100).run(model, rows.images, rows.labels, ids=rows.ids)
    assert result.asr() == 1
    assert abs(result.mean_l0 - mean) < mean / 5
    assert torch.equal(model(result.x_adv).argmax(1) != rows.labels, result.success)
