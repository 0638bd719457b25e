"""The compiled kernel of the Brendel & Bethge sub-problem: the checks of tests/attacks, and its replay."""

import pytest
import torch

from sigmazero.attacks import _bb_solver
from tests.attacks.test_bb_kernel import check, judge, subproblem

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_kernel_agrees_with_the_definition(dtype):
    check(24, [1, 100, 784, 3072], dtype, "cuda")


@pytest.mark.parametrize("sites", [12288, 20000])
def test_long_rows(sites):
    """Within the kernel's reach and beyond it."""
    case = [v.cuda() for v in subproblem("random", 8, sites)]
    step, wanted = _bb_solver.solve(*case), _bb_solver.solve_by_operations(*case)
    reached, number = judge(case, step.s, step.clean)
    as_wanted, fewest = judge(case, wanted.s, wanted.clean)
    assert torch.equal(reached, as_wanted)
    assert ((number - fewest).abs() <= 0.02 * sites).all()


def test_replay_answers_what_is_in_its_tensors():
    first, second = ([v.cuda() for v in subproblem("random", 8, 300)] for _ in range(2))
    second[2] = -second[2]
    held = [v.clone() for v in first]
    _bb_solver.solve(*held)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step = _bb_solver.solve(*held)
    for case in (first, second):
        for to, new in zip(held, case, strict=True):
            to.copy_(new)
        graph.replay()
        wanted = _bb_solver.solve(*case)
        assert torch.equal(step.s, wanted.s)
        assert torch.equal(step.clean, wanted.clean)
