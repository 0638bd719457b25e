"""What users write passes mypy --strict, and what is wrong does not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import sigmazero as sz

pytestmark = pytest.mark.slow

USER = Path(__file__).with_name("user_code.py")
WRONG = """
import sigmazero as sz
from torch import Tensor, nn

def wrong(model: nn.Module, x: Tensor, y: Tensor) -> None:
    sz.sigma_zero(model, x, y, stepz=3)  # 1
    sz.sigma_zero(model, x, y, steps="3")  # 2
    sz.fmn(model, x, y, unit="pixels")  # 3
    sz.SigmaZero(step=3)  # 4
    sz.SigmaZero()(model, x, y, layout="NHWC")  # 5
    result: Tensor = sz.SigmaZero()(model, x, y)  # 6
    sz.sigma_zer0(model, x, y)  # 7
"""


def mypy(path: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir",
        str(path.parent / "cache"),
    ]
    return subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)


def test_a_users_file_with_every_public_name(tmp_path):
    text = USER.read_text(encoding="utf-8")
    assert set(re.findall(r"\bsz\.(\w+)", text)) >= set(sz.__all__)
    (tmp_path / "user.py").write_text(text, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    right = mypy(tmp_path / "user.py")
    assert right.returncode == 0, right.stdout
    found = {
        WRONG.splitlines()[int(line) - 1][-1]
        for line in re.findall(r"wrong\.py:(\d+): error", mypy(tmp_path / "wrong.py").stdout)
    }
    assert found == set("1234567")
