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


def test_with_parent_the_one_above_dies_and_the_process_itself_says_no_more():
    child = f"import os; print(os.getpid(), flush=True); {CODE}".replace("; \n", "\n")
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print('it went on')"
    env = {**os.environ, faults.VARIABLE: "store.commit:2:parent"}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child_id = int(parent.stdout.readline())
        assert parent.wait(60) == -signal.SIGKILL
        os.kill(child_id, signal.SIGKILL)  # it is still there
        assert parent.stdout.read().split() == ["file.written", "store.commit"]


@pytest.mark.parametrize("text", ["store.comit:2", "store.commit:2:child"])
def test_a_point_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"store\.comit|child"):
        faults.arm(text)
