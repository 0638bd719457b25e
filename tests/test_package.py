"""What `import sigmazero` gives, and when."""

import importlib
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


def test_the_benchmark_and_the_cascade_are_loaded_when_they_are_asked_for():
    code = (
        "import sys, sigmazero; early = {'sigmazero.bench', 'sigmazero.auto', 'sigmazero.models'} & set(sys.modules);"
        "sigmazero.evaluate, sigmazero.SparseAutoAttack;"
        "print(sorted(early), {'sigmazero.bench', 'sigmazero.auto'} <= set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "[] True\n"


def test_nothing_optional_is_imported():
    code = "import sys, sigmazero, sigmazero.models, sigmazero.data; print({m.split('.')[0] for m in sys.modules})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not [name for name in ("platformdirs", "typer", "rich", "safetensors", "PIL") if f"'{name}'" in out]


def test_what_does_not_exist_is_named():
    with pytest.raises(AttributeError, match="has no attribute 'sigmazro'"):
        sigmazero.sigmazro  # noqa: B018
