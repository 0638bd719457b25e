"""What a plan or a store names is data: code that it names runs only if the user says so.

Known models, data sets, arrays and weights run nothing. A Python file or module does, and so may an exported program
or an ONNX file: people send each other plans and stores, and opening one must not run what its maker likes.
"""

from collections.abc import Container, Sequence

from sigmazero import models
from sigmazero.bench.plan import DataSpec, ModelSpec, is_code

# Code of ours that plans name. Whole names: a pattern could also fit a file in the current folder.
BUNDLED = frozenset(
    {
        "sigmazero.models.toys.nearest_mean:build",
        "sigmazero.models.toys.two_dimensions:build",
        "sigmazero.models.toys.two_dimensions:rows",
    }
)


class Everything(Container[str]):
    """Contains every name: whoever wrote the plan is trusted."""

    def __contains__(self, _: object) -> bool:
        return True


EVERYTHING = Everything()


class UntrustedCode(ValueError):
    """Code that a plan or a store names, and that nobody in this run said is to be trusted."""

    def __init__(self, named: Sequence[ModelSpec | DataSpec]) -> None:
        ways = dict.fromkeys(
            f"{'--model' if isinstance(each, ModelSpec) else '--data'} {_place(each)}" for each in named
        )
        what = ", ".join(dict.fromkeys(map(_place, named)))
        super().__init__(
            f"this needs code to be run that a plan or a store only names: {what}. If you know whose it is, say "
            f"--trust-code, or {' '.join(ways)} (in Python: Loader(trust=[...]))"
        )


def names_code(spec: ModelSpec | DataSpec) -> bool:
    """Whether loading this may run code that is not ours.

    >>> names_code(ModelSpec("M1", "M1")), names_code(ModelSpec("mine", "net.py:build"))
    (False, True)
    """
    if isinstance(spec, DataSpec):
        return is_code(spec.source) and spec.source not in BUNDLED
    if spec.spec in BUNDLED or models.find(spec.spec) is not None:
        return False
    return ":" in spec.spec or "." in spec.spec  # without either it is a name that nothing has, and loading says so


def refuse_untrusted(specs: Sequence[ModelSpec | DataSpec], trust: Container[str]) -> None:
    """Raise if one of these names code that is not trusted."""
    wrong = [each for each in specs if names_code(each) and _place(each) not in trust]
    if wrong:
        raise UntrustedCode(wrong)


def _place(spec: ModelSpec | DataSpec) -> str:
    return spec.spec if isinstance(spec, ModelSpec) else spec.source
