from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import sigmazero
from sigmazero import models
from sigmazero.data import Table, choose, load
from sigmazero.models.architectures.small import DemoCNN

WEIGHTS = Path(sigmazero.__file__).parent / "models" / "weights" / "demo.safetensors"


def test_bundled_weights_are_small_and_as_accurate_as_they_say() -> None:
    assert WEIGHTS.stat().st_size <= 1_000_000
    with safe_open(WEIGHTS, framework="pt") as file:
        facts = json.loads(file.metadata()["facts"])
    model = DemoCNN()
    model.load_state_dict(load_file(WEIGHTS))
    held = load("mnist-5k-heldout")
    with torch.no_grad():
        accuracy = (model(held.images).argmax(dim=1) == held.labels).double().mean().item()
    assert accuracy >= 0.96
    assert abs(accuracy - float(facts["accuracy_heldout_1000"])) < 0.0015  # a near tie may round differently


@pytest.mark.parametrize("name", ["adult-mlp", "adult-mlp-robust"])
def test_networks_of_the_bundled_table(name: str) -> None:
    path = WEIGHTS.with_name(f"{name}.safetensors")
    assert path.stat().st_size <= 100_000
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["facts"])
    rows = load("adult-sample")
    with torch.no_grad():
        accuracy = (models.load(name)(rows.images).argmax(1) == rows.labels).double().mean().item()
    assert abs(accuracy - float(facts["accuracy_heldout"])) < 0.03  # that of 15,060 rows, here 600 of them


def test_the_bundled_table_is_a_part_of_the_published_one(shared_data: Path) -> None:
    rows = load("adult-sample")
    notes = Path(__file__).parents[2] / "benchmarks" / "notes" / "adult.toml"
    with pytest.warns(UserWarning, match="3620 of 48842 rows have a missing value"):
        whole = Table.read(shared_data / "tabular" / "adult.csv.gz", notes)
    held = whole.rows("test", torch.float32).select(choose(15_060, 600, 0))
    assert torch.equal(rows.images, held.images)
    assert torch.equal(rows.labels, held.labels)
    assert rows.space is not None
    # The same may change in both. The values a search tries first are quantiles of the rows at hand.
    assert replace(rows.space, likely={}).to_toml() == replace(whole.space, likely={}).to_toml()
