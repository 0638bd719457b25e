"""Every figure that `report` draws of literal facts names its attacks and shows their numbers."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.commands import run_command
from tests.helpers.stores import BOXES, LABELS, write_store

MINIMUM = {(run.model, run.attack): np.array(run.changes) for run in BOXES if run.budget is None}
MODELS, ATTACKS = sorted({model for model, _ in MINIMUM}), sorted({attack for _, attack in MINIMUM})


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return write_store(tmp_path_factory.mktemp("literal") / "boxes.db", BOXES)


def texts(store: Path, folder: Path, *options: str) -> Counter[str]:
    """Return the texts of a figure: an SVG file has each beside its glyphs."""
    file = folder / "figure.svg"
    done = run_command("report", store, *(file if option == "FILE" else option for option in options))
    assert done.code == 0, done.stderr
    return Counter(re.findall(r"<!-- (.*?) -->", file.read_text(encoding="utf-8"), re.DOTALL))


def named(found: Counter[str], *words: str) -> None:
    everything = "\n".join(found)
    assert all(word in everything for word in words), found


@pytest.mark.parametrize("option", ["curves", "pareto", "histogram", "effort", "agreement"])
def test_a_figure_names_its_attacks_and_models(option, store, tmp_path):
    named(texts(store, tmp_path, f"--{option}", "FILE"), *ATTACKS, *MODELS)


def test_curves_end_where_they_are_asked_to(store, tmp_path):
    found = texts(store, tmp_path, "--curves", "FILE", "--until", "40", "--log")
    named(found, *ATTACKS)
    assert found != texts(store, tmp_path, "--curves", "FILE", "--until", "10")


def test_a_histogram_has_a_panel_for_each_attack_and_counts_all_samples(store, tmp_path):
    found = texts(store, tmp_path, "--histogram", "FILE")
    for model in MODELS:
        of = [attack for one, attack in MINIMUM if one == model]
        assert of
        named(found, *of, model)
    assert any(re.search(rf"\b{len(LABELS)}\b", text) for text in found)


def test_a_confusion_grid_has_every_class(store, tmp_path):
    found = texts(store, tmp_path, "--confusion", "FILE")
    named(found, *MODELS)
    assert all(found[str(label)] for label in set(LABELS.tolist()))


def test_heat_maps_are_of_the_attacks_that_changed_something(store, tmp_path):
    named(texts(store, tmp_path, "--heat", "FILE"), *ATTACKS)
