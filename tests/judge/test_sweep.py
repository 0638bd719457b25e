"""Whatever the model, the inputs and the question: what an attack claims is true, and it leaves no trace.

Here 80 cases, always the same; `make nightly` tries 8,000 others. A failure prints the smallest case that shows it.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

import sigmazero as sz
from tests.helpers.cases import BOXES, LAYOUTS, MASKS, MODELS, VALUES, Case
from tests.helpers.trial import NIGHTLY, Judge, fit, trial

SHAPES = ((1,), (2,), (7,), (12,), (65,), (1, 1), (4, 3), (1, 4, 4), (3, 2, 3), (3, 5, 5), (2, 2, 2, 2), (3, 32, 32))
CASES = st.builds(
    Case,
    attack=st.sampled_from(sorted(sz.ATTACKS)),
    model=st.sampled_from(MODELS),
    classes=st.sampled_from((2, 3, 4, 10, 1000)),
    shape=st.sampled_from(SHAPES),
    rows=st.sampled_from((0, 1, 2, 3, 5, 9)),
    dtype=st.sampled_from(("float32", "float64")),
    layout=st.sampled_from(LAYOUTS),
    values=st.sampled_from(VALUES),
    box=st.sampled_from(BOXES),
    mask=st.sampled_from(MASKS),
    unit=st.sampled_from(("feature", "pixel")),
    budget=st.sampled_from((None, 0, 1, 3, 10**6)),
    targeted=st.booleans(),
    steps=st.sampled_from((1, 2, 9, 30)),
    batch_size=st.sampled_from((None, 1, 2, 4)),
    seed=st.integers(0, 2**16),
)


@settings(max_examples=8000 if NIGHTLY else 80, derandomize=not NIGHTLY, print_blob=False)
@given(case=CASES.map(fit))
def test_claims_are_true_whatever_is_asked(judge: Judge, case: Case) -> None:
    assert trial(case, judge) == []
