from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

import sigmazero
from sigmazero.data import load
from sigmazero.models.architectures.demo_cnn import build

WEIGHTS = Path(sigmazero.__file__).parent / "models" / "weights" / "demo.safetensors"


def test_bundled_weights_are_small_and_as_accurate_as_they_say() -> None:
    assert WEIGHTS.stat().st_size <= 1_000_000
    with safe_open(WEIGHTS, framework="pt") as file:
        facts = json.loads(file.metadata()["facts"])
    model = build()
    model.load_state_dict(load_file(WEIGHTS))
    held = load("mnist-5k-heldout")
    with torch.no_grad():
        accuracy = (model(held.images).argmax(dim=1) == held.labels).double().mean().item()
    assert accuracy >= 0.96
    assert abs(accuracy - float(facts["accuracy_heldout_1000"])) < 0.0015  # a near tie may round differently
