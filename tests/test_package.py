"""What `import sigmazero` gives, and when."""

import importlib
import json
import os
import subprocess
import sys

import pytest

import sigmazero


def test_dir_shows_the_public_names_alone():
    shown = dir(sigmazero)
    assert set(sigmazero.__all__) < set(shown)
    assert {"attacks", "data", "models", "store", "report", "__version__"} < set(shown)
    assert not {"core", "run", "cli", "import_module", "TYPE_CHECKING"} & set(shown)
    assert all(hasattr(sigmazero, name) for name in shown)
    assert sigmazero.models is importlib.import_module("sigmazero.models")


STAGES = """
import json, sys
import sigmazero
light = [*sys.modules]
sigmazero.get
core = [*sys.modules]
import sigmazero.models, sigmazero.data
more = [*sys.modules]
sigmazero.evaluate, sigmazero.SparseAutoAttack, sigmazero.Space
whole = [*sys.modules]
import torch
model, x = torch.nn.Linear(6, 3), torch.rand(2, 6)
sigmazero.get("sigma-zero", steps=2).run(model, x, model(x).argmax(1))
print(json.dumps([core, more, whole, light, [*sys.modules]]))
"""
OPTIONAL = {"typer", "rich", "matplotlib", "PIL", "sklearn", "mlxtend", "scipy", "pandas", "torchvision", "safetensors"}
OPTIONAL |= {"ray"}
COMPILER = {"torch._dynamo", "torch._inductor", "triton"}
PEERS = {"foolbox", "art", "torchattacks"}


@pytest.fixture(scope="module")
def imports() -> list[set[str]]:
    """What a new process has loaded with the package, its models and data, all that was asked for, and a first run."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # this copy, not an installed one
    done = subprocess.run([sys.executable, "-c", STAGES], capture_output=True, text=True, check=True, env=env)
    return [set(modules) for modules in json.loads(done.stdout)]


def test_torch_is_loaded_when_something_is_asked_for(imports):
    assert "torch" not in imports[3]


def test_the_core_needs_torch_and_numpy_alone(imports):
    assert {"torch", "numpy"} <= imports[0]
    assert not imports[0] & COMPILER, "importing sigmazero loads torch's compiler, which takes seconds"
    assert not imports[0] & OPTIONAL


def test_a_first_run_on_a_processor_loads_neither_the_compiler_nor_peers(imports):
    """In a process that has loaded everything of ours; torch itself loads torch.fx, and sympy at a first gradient."""
    assert {"sigmazero.auto", "sigmazero.run.session"} <= imports[4]
    assert not imports[4] & (COMPILER | PEERS | OPTIONAL)


def test_models_and_data_import_nothing_optional(imports):
    assert {"sigmazero.models", "sigmazero.data"} <= imports[1]
    assert not imports[1] & (OPTIONAL | {"platformdirs"})


def test_the_benchmark_and_the_cascade_are_loaded_when_they_are_asked_for(imports):
    late = {"sigmazero.bench", "sigmazero.auto"}
    assert not imports[0] & (late | {"sigmazero.models"})
    assert late <= imports[2]
    assert not imports[2] & {"ray"}, "only the engine that needs it loads it"


def test_what_does_not_exist_is_named():
    with pytest.raises(AttributeError, match="has no attribute 'sigmazro'"):
        sigmazero.sigmazro  # noqa: B018
