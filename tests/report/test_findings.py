"""Findings of a store: the doctor's, and those that stored results show."""

from dataclasses import replace

import numpy as np
import pytest

from sigmazero.core.findings import coded
from sigmazero.report.findings import derived, errors, findings, masked, relevant
from sigmazero.report.runs import Run, load
from sigmazero.store import Store
from tests.helpers.stores import BOXES, write_store


@pytest.fixture
def run(tmp_path) -> Run:
    with Store(write_store(tmp_path / "s.db", BOXES[:1])) as store:
        return load(store)[0]


def made(run: Run, attack: str, l0: list[float], steps: int = 100) -> Run:
    found = np.array(l0)
    facts = replace(run.facts, l0=found, outcome=np.where(np.isfinite(found), 1, 2).astype(np.int8))
    return replace(run, facts=facts, info=replace(run.info, key=f"{attack} {steps}", attack=attack, steps=steps))


@pytest.mark.parametrize(("beaten", "severity"), [(2, None), (3, "warning"), (10, "warning"), (11, "error")])
def test_masked_gradients_are_an_error_above_a_tenth_of_the_samples(beaten, severity):
    led = np.where(np.arange(100) < beaten, np.inf, 3.0)
    found = masked(np.full(100, 5.0), led, "sparse-rs")
    assert (found.severity if found else None) == severity
    if found:
        assert f"{beaten} of 100" in found.detail


def test_an_attack_that_tries_every_change_may_beat_those_with_gradients(run):
    led = made(run, "sigma-zero", [np.inf] * 6 + [1, 2])
    assert [found.code for _, found in derived([led, made(run, "sparse-rs", [3] * 8)])] == ["SZ014"]
    assert not [*derived([led, made(run, "corner", [3] * 8)])]


def test_an_attack_that_does_worse_with_more_steps_is_found(run):
    short, long = made(run, "fmn", [1] * 8, 10), made(run, "fmn", [1] * 4 + [np.inf] * 4, 1000)
    ((where, found),) = derived([short, long])
    assert (where.info.steps, found.code) == (1000, "SZ031")
    assert not [*derived([made(run, "fmn", [1] * 4 + [np.inf] * 4, 10), made(run, "fmn", [1] * 8, 1000)])]


def test_findings_about_gradients_are_no_errors_of_attacks_without_them():
    found = [coded("SZ012", "none", "wrap it"), coded("SZ005", "chance", "look")]
    assert [each.severity for each in relevant(found, "sparse-rs")] == ["warning", "error"]
    assert [each.severity for each in relevant(found, "sigma-zero")] == ["error", "error"]


def test_two_findings_of_one_code_are_two_errors(tmp_path):
    path = write_store(tmp_path / "s.db", BOXES[:2])
    with Store(path, write=True) as store:
        for key, detail in zip(store.cell_keys(), ("8 fell to sparse-rs", "9 fell to query-swap"), strict=True):
            store.diagnose(key, [{"code": "SZ014", "detail": detail, "severity": "error"}])
    with Store(path) as store:
        found = findings(store, load(store))
    assert [each.detail for each in errors(found)] == ["8 fell to sparse-rs", "9 fell to query-swap"]
    assert errors(found, ["SZ014"]) == []
