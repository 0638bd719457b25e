"""An ONNX file as a network of torch, with gradients. Reading one runs no code and takes little more than its size."""

import hashlib
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sigmazero.core.files import afford
from sigmazero.core.messages import one_line, shown
from sigmazero.models.onnx import shapes
from sigmazero.models.onnx.graph import GraphStep, Program, read
from sigmazero.models.onnx.operators import OPERATORS

__all__ = ["OnnxNetwork", "UnknownOperator", "load_onnx", "shapes"]  # `shapes` is loaded for what it makes known


class UnknownOperator(ValueError):
    """An ONNX file uses operators that are not converted here."""


class OnnxNetwork(nn.Module):
    """Takes the steps of a program one after the other.

    Floating-point constants are parameters, so that they move and change format with the network; whole numbers, which
    say shapes and places, stay where they are.
    """

    def __init__(self, program: Program, print_: str, name: str) -> None:
        super().__init__()
        self._program, self._print, self._name = (program,), print_, name
        self._places: dict[str, str] = {}
        self._plain: tuple[dict[str, Tensor], ...] = ({},)
        steps, constants = [], dict(program.constants)
        for step in program.steps:
            if step.kind == "Constant":
                constants[step.outputs[0]] = OPERATORS["Constant"](step.settings)
            else:
                steps.append(step)
        self._steps = (tuple(steps),)
        for place, (key, value) in enumerate(constants.items()):
            if value.is_floating_point():
                self._places[key] = f"constant{place}"
                self.register_parameter(f"constant{place}", nn.Parameter(value.clone(), requires_grad=False))
            else:
                self._plain[0][key] = value

    def forward(self, x: Tensor) -> Tensor:
        """Ask."""
        program = self._program[0]
        values: dict[str, Any] = {**self._plain[0], program.source: x, "": None}
        values |= {key: getattr(self, place) for key, place in self._places.items()}
        fixed = program.shape[0] if program.shape else None
        common = {"version": program.version, "rows": len(x), "fixed": fixed}
        for step in self._steps[0]:
            given = [values[name] for name in step.inputs]
            values[step.outputs[0]] = OPERATORS[step.kind]({**step.settings, **common, "kind": step.kind}, *given)
        answer: Tensor = values[program.result]
        return answer

    def get_extra_state(self) -> str:
        """What tells this file from others."""
        return self._print

    def set_extra_state(self, state: object) -> None:
        """Steps come from a file alone: it must be the very one."""
        if state != self._print:
            raise ValueError(f"{self._name} is not the file that was saved; load that one")

    def extra_repr(self) -> str:
        """Which file it is."""
        return f"{self._name}, {len(self._steps[0])} steps"


def load_onnx(path: Path) -> nn.Module:
    """The network in an ONNX file, in evaluation mode."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    afford(2 * path.stat().st_size, str(path))
    content = path.read_bytes()
    try:
        program = read(content)
        _check(program)
        network = OnnxNetwork(program, hashlib.sha256(content).hexdigest(), path.name)
    except UnknownOperator:
        raise
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, RuntimeError, AttributeError) as error:
        raise ValueError(f"{path} is no ONNX network that can be converted ({one_line(error)})") from error
    return network.eval()


def _check(program: Program) -> None:
    """Refuse what cannot be computed step by step."""
    unknown = sorted({shown(step.kind) for step in program.steps if step.kind not in OPERATORS})
    if unknown:
        raise UnknownOperator(
            f"the network uses {', '.join(unknown)}, which {'is' if len(unknown) == 1 else 'are'} not converted here; "
            "sz.wrap(path, runtime=True) asks it through ONNX Runtime, without gradients"
        )
    known = {program.source, "", *program.constants}
    for step in program.steps:
        _check_step(step, known)
        known.update(step.outputs)
    if program.result not in known:
        raise ValueError(f"nothing makes the output {shown(program.result)}")


def _check_step(step: GraphStep, known: set[str]) -> None:
    missing = [name for name in step.inputs if name not in known]
    if missing:
        raise ValueError(f"{step.kind} reads {shown(missing[0])}, which nothing before it makes")
    if not step.outputs:
        raise ValueError(f"{step.kind} has no output")
    if len([name for name in step.outputs if name]) > 1 and step.kind not in ("Dropout", "BatchNormalization"):
        raise ValueError(f"{step.kind} has {len(step.outputs)} outputs; one is converted")
