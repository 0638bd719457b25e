"""Every figure of a result against its definition, in plain NumPy, on random samples."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sigmazero as sz

INF = math.inf


def middle(changes: np.ndarray[Any, Any]) -> float:
    """The median by sorting: NumPy's own makes NaN of two infinities."""
    ordered, n = sorted(changes.tolist()), len(changes)
    return float(ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2)


def share(outcome: sz.Outcome) -> Callable[[sz.Result], float]:
    """The share of all samples that ended so."""
    return lambda result: float(np.mean(result.outcome.numpy() == outcome))


# A figure that is not here fails the test below: write down what it is.
FIGURES: dict[str, Callable[[sz.Result], float]] = {
    "samples": lambda result: len(result.x_adv),
    "already_wrong": share(sz.Outcome.ALREADY),
    "success": lambda result: share(sz.Outcome.ALREADY)(result) + share(sz.Outcome.FOUND)(result),
    "asr": lambda result: float(np.mean(np.isfinite(changes(result)))),
    "median_l0": lambda result: middle(changes(result)),
    "mean_l0": lambda result: float(np.mean(changes(result))),
    "mean_l0_found": lambda result: float(np.mean([k for k in changes(result) if k < INF] or [math.nan])),
    "returned_asr": lambda result: float(np.mean(np.isfinite(changes(owned(result))))),
    "returned_median_l0": lambda result: middle(changes(owned(result))),
    "forwards": lambda result: float(np.mean(result.forwards.numpy())),
    "backwards": lambda result: float(np.mean(result.backwards.numpy())),
    "queries": lambda result: float(np.mean(result.forwards.numpy() + result.backwards.numpy())),
    "seconds_per_sample": lambda result: result.seconds / len(result.x_adv),
    "non_finite": share(sz.Outcome.NON_FINITE),
    "unverified": share(sz.Outcome.UNVERIFIED),
    "no_start": share(sz.Outcome.NO_START),
}
OWN = {"returned_asr", "returned_median_l0"}  # of methods that return another point than the best one they saw


def changes(result: sz.Result) -> np.ndarray[Any, Any]:
    """The number of changes in the unit that counts."""
    return (result.l0_pixel if result.unit == "pixel" else result.l0).double().numpy()


def owned(result: sz.Result) -> sz.Result:
    """The report about what the method returns itself."""
    assert result.own is not None
    return result.own


@st.composite
def results(draw: st.DrawFn) -> sz.Result:
    """A result whose columns say all that they may say."""
    n = draw(st.integers(1, 12))

    def column(values: st.SearchStrategy[Any], dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.tensor(draw(st.lists(values, min_size=n, max_size=n)), dtype=dtype)

    def some(own: sz.Result | None = None) -> sz.Result:
        l0 = column(st.one_of(st.integers(0, 30), st.just(INF)), torch.float32)
        budget, empty = draw(st.one_of(st.none(), st.integers(1, 20))), torch.zeros(n, dtype=torch.int64)
        return sz.Result(
            x_adv=torch.zeros(n, 3),
            success=l0 <= (3e38 if budget is None else budget),
            l0=l0,
            l0_pixel=(l0 / 2).ceil(),
            step_found=empty,
            forwards=column(st.integers(0, 2000)),
            backwards=column(st.integers(0, 2000)),
            outcome=column(st.sampled_from(sz.Outcome), torch.int8),
            margin=torch.zeros(n),
            prediction=empty,
            clean_prediction=empty,
            ids=torch.arange(n),
            cost=l0 * 0.1,
            unit=draw(st.sampled_from(["feature", "pixel"])),
            budget=budget,
            seconds=draw(st.floats(0, 1e4)),
            own=own,
        )

    result = some()
    return replace(result, own=replace(some(), unit=result.unit)) if draw(st.booleans()) else result


@given(result=results())
def test_every_figure_is_what_its_definition_says(result):
    wanted = {name: figure for name, figure in FIGURES.items() if result.own is not None or name not in OWN}
    found = result.summary()
    assert set(found) == set(wanted)
    for name, figure in wanted.items():
        assert found[name] == pytest.approx(figure(result), rel=1e-12, nan_ok=True), name
    assert result.median_l0 == pytest.approx(found["median_l0"])
    assert result.mean_l0 == pytest.approx(found["mean_l0"])
    within = np.isfinite(changes(result)) & (changes(result) <= (INF if result.budget is None else result.budget))
    assert result.asr() == pytest.approx(np.mean(within))


@given(result=results(), k=st.one_of(st.integers(0, 31), st.just(INF)))
def test_success_rates_count_all_samples(result, k):
    met = [value <= k and value < INF for value in changes(result).tolist()]
    assert result.asr(k) == sum(met) / len(met)
    if result.budget is not None and result.unit == "feature":
        assert result.asr(result.budget) == result.success.double().mean()
    cheap = [value <= k and value < INF for value in result.l0.tolist()]
    assert result.asr_at_cost(k / 10) == sum(cheap) / len(cheap)  # a tenth of a whole number rounds


@given(result=results(), data=st.data())
def test_parts_have_the_figures_of_their_samples(result, data):
    cut = data.draw(st.integers(1, len(result)))
    rows = torch.arange(len(result))
    first, rest = result.take(rows[:cut]), result.take(rows[cut:])
    assert torch.equal(first.forwards, result.forwards[:cut])
    assert first.summary()["queries"] == pytest.approx(FIGURES["queries"](first))
    if len(rest):
        joined = sz.Result.join([first, rest])
        assert joined.summary() == pytest.approx(result.summary(), nan_ok=True)


@given(result=results())
def test_a_bad_number_of_changes_is_named_and_no_samples_have_no_figures(result):
    for k in (-1, math.nan):
        with pytest.raises(ValueError, match=f"k={k}"):
            result.asr(k)
    none = result.take(torch.zeros(0, dtype=torch.int64)).summary()
    assert none.pop("samples") == 0
    assert all(map(math.isnan, none.values()))


def test_numbers_of_outcomes_are_those_in_files():
    names = "ALREADY FOUND NOT_FOUND NON_FINITE UNVERIFIED NO_START STOPPED BEYOND_BUDGET"
    assert {name: int(each) for name, each in sz.Outcome.__members__.items()} == {
        name: number for number, name in enumerate(names.split())
    }
