"""Points at which a process dies, and only when it was asked to."""

import os
import signal
import subprocess
import sys

import pytest

from sigmazero.core import faults

# The module alone, without the package and torch around it; the points that were passed are printed.
CODE = f"""
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("faults", {faults.__file__!r})
spec.loader.exec_module(faults := module_from_spec(spec))
for point in ("file.written", "store.commit", "store.commit", "store.commit"):
    faults.reach(point)
    print(point, flush=True)
"""


@pytest.mark.parametrize(
    ("armed", "passed", "ended"),
    [
        ("", 4, 0),
        ("store.commit", 1, -signal.SIGKILL),
        ("store.commit:3", 3, -signal.SIGKILL),
        ("store.commit:4", 4, 0),
        ("store.begin", 4, 0),
    ],
)
def test_the_variable_says_where(armed, passed, ended):
    env = {**os.environ, faults.VARIABLE: armed}
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("\n")) == (ended, passed), done.stderr


def test_a_point_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"names no point: 'store\.comit'; there are store\.begin"):
        faults.arm("store.comit:2")
