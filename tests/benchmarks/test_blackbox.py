"""The benchmark of attacks without gradients: what was measured is not measured again, and nobody's failure is lost."""

import argparse
import json
from pathlib import Path

import pytest
import torch

import sigmazero as sz
from benchmarks import blackbox
from tests.helpers.networks import linear_problem

pytestmark = pytest.mark.slow


def test_a_run_that_was_cut_short_goes_on_where_it_was(tmp_path: Path) -> None:
    model, x, y = linear_problem((20,), 5)
    asked: list[int] = []
    model.register_forward_hook(lambda module, args, out: asked.append(len(out)))
    args = argparse.Namespace(batch=2, parts=tmp_path / "parts.jsonl")
    attack, rows, line = sz.get("query-swap", steps=30), (x, y, torch.arange(5)), {"attack": "query-swap"}
    first = blackbox.batches(attack, blackbox.Scores(model), rows, line, args)
    lines = args.parts.read_text().splitlines()
    assert [json.loads(text) for text in lines] == first
    args.parts.write_text("\n".join(lines[:2]) + "\n")
    asked.clear()
    again = blackbox.batches(attack, blackbox.Scores(model), rows, line, args)
    assert set(asked) == {1}  # the last batch has one row
    whole = blackbox.batches(attack, blackbox.Scores(model), rows, line, argparse.Namespace(batch=None, parts=None))
    assert [part["l0"] for part in again] == [part["l0"] for part in first]
    assert [n for part in first for n in part["l0"]] == whole[0]["l0"]


def test_a_sample_that_was_not_fooled_counts_as_all_its_features() -> None:
    parts = [{"l0": [3, None], "most_forwards": 9, "seconds": 1.0}, {"l0": [5], "most_forwards": 12, "seconds": 2.0}]
    found = blackbox.measure(parts, 20, {"sparse-rs-min": torch.tensor([6.0, 20.0, 6.0])})
    assert found["changes"] == [3, 20, 5]
    assert (found["mean_l0"], found["median_l0"], found["asr"]) == (None, 5.0, 2 / 3)
    assert found["difference"] == round(28 / 32 - 1, 4)
    assert (found["most_forwards"], found["seconds"]) == (12, 3.0)
