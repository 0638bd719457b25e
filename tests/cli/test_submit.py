"""A plan as an array of jobs: the script is one that bash takes, and what it runs are the shards."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sigmazero.core.extras import MissingExtra
from sigmazero.store import Store
from tests.plans import PLAN, assert_same, contents, run

pytestmark = pytest.mark.slow


@pytest.fixture
def spaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with blanks and a quote in its name, and a plan with blanks in its own."""
    place = folder / "it's a folder"
    place.mkdir()
    for name in ("net.py", "mine.npz"):
        shutil.copy(folder / name, place)
    text = PLAN.replace("steps = 30", "steps = 4").replace(', "net.py:other"', "").replace(', "vfga"', "")
    (place / "my plan.toml").write_text(text)
    monkeypatch.chdir(place)
    return place


def bash(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", *words], env={**os.environ, **environment}, text=True, capture_output=True, check=False, timeout=300
    )


def test_the_script_runs_the_shards_and_says_how_to_merge_them(sigmazero, spaced):
    shown = sigmazero(
        *("submit", "my plan.toml", "--slurm", "--shards", 2, "--trust-code", "--time", "01:00:00", "--limit", 20),
        *("--partition", "gpu", "--setup", "export NOTE='a b'; touch \"$NOTE\"", "--gpus", "a100:1"),
    )
    assert shown.exit_code == 0, shown.output
    text = shown.stdout
    for line in (
        "--array=1-2",
        "--time=01:00:00",
        "--gres=gpu:a100:1",
        "--partition=gpu",
        "--job-name=sigmazero-my-plan",
    ):
        assert f"\n#SBATCH {line}\n" in text
    Path("job.sh").write_text(text)
    assert bash("-n", "job.sh").returncode == 0
    for number in ("1", "2"):
        done = bash("job.sh", SLURM_ARRAY_TASK_ID=number)
        assert done.returncode == 0, done.stderr
        assert Path(f"runs/my plan-limit-20-part-{number}-of-2.db").is_file()
    assert Path("a b").exists()
    merge = next(line for line in text.splitlines() if line.startswith("#   sigmazero merge")).removeprefix("#   ")
    words = bash("-c", merge.replace("sigmazero", r"printf '%s\0'", 1)).stdout.split("\0")[:-1]  # as bash reads them
    merged = sigmazero(*words)
    assert merged.exit_code == 0, merged.output
    run(Path("my plan.toml").read_text(), "one.db", limit=20)
    assert_same(*(dict(sorted(contents(path).items())) for path in ("runs/my plan-limit-20.db", "one.db")))
    with Store("runs/my plan-limit-20.db") as store:
        assert all(one.state == "done" for one in store.status())


def test_a_setup_that_fails_and_a_folder_that_is_gone(sigmazero, spaced):
    text = sigmazero("submit", "my plan.toml", "--slurm", "--shards", 1, "--trust-code", "--gpus", 0).stdout
    assert "gres" not in text
    Path("job.sh").write_text(text.replace("a folder", "another folder"))
    done = bash("job.sh", SLURM_ARRAY_TASK_ID="1")
    assert done.returncode == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--shards", "4"), "for which scheduler? Write --slurm"),
        (("--slurm", "--shards", "0"), "shards = 0: give a number from 1"),
        (("--slurm", "--shards", "4", "--partition", "a\n#SBATCH --wrap=x"), "partition = 'a\\n#SBATCH --wrap=x'"),
        (("--slurm", "--shards", "4", "--time", "1 hour"), "time = '1 hour' is none that SLURM knows"),
        (("--slurm", "--shards", "4", "--now"), "say how long one may take"),
        (("--slurm", "--shards", "4", "--limit", "0"), "a limit of 0 makes no sense"),
        (("--slurm", "--shards", "4", "--prepare", "fast"), "--prepare fast is not one of"),
        (("--slurm", "--shards", "4", "--device", "moon"), "there is no device called 'moon'"),
        (("--slurm", "--shards", "4", "--engine", "magic"), "there is no engine 'magic'"),
        (("--slurm", "--shards", "4", "--workers", "2"), "says nothing to the engine 'local'"),
    ],
)
def test_wrong_input_is_refused_in_one_line(sigmazero, spaced, words, said):
    done = sigmazero("submit", "my plan.toml", "--trust-code", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_options_of_a_run_are_handed_on(sigmazero, spaced):
    words = ("--precision", "tf32", "--device", "cuda", "--prepare", "none", "--engine", "processes", "--workers", "2")
    done = sigmazero("submit", "my plan.toml", "--slurm", "--shards", 4, "--trust-code", *words)
    assert done.exit_code == 0, done.output
    assert shlex.join(words) in done.stdout
    plain = sigmazero("submit", "my plan.toml", "--slurm", "--shards", 4, "--trust-code")
    assert "'my plan.toml' --trust-code --shard" in plain.stdout


def test_code_is_submitted_only_if_it_is_trusted(sigmazero, spaced):
    done = sigmazero("submit", "my plan.toml", "--slurm", "--shards", 4)
    assert done.exit_code == 2
    assert "net.py:build" in done.stderr
    some = sigmazero("submit", "my plan.toml", "--slurm", "--shards", 4, "--model", "net.py:build")
    assert "--model net.py:build --shard" in some.stdout


def test_without_submitit_a_line_says_what_to_install(sigmazero, spaced, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    done = sigmazero("submit", "my plan.toml", "--slurm", "--shards", 4, "--trust-code", "--now", "--time", "9")
    assert done.exit_code == 2
    assert "pip install 'sigmazero[slurm]'" in done.stderr
    assert issubclass(MissingExtra, ImportError)


def test_with_submitit_every_shard_is_a_job(sigmazero, spaced, monkeypatch):
    seen = SimpleNamespace()

    class Executor:
        def __init__(self, folder: Path, cluster: str) -> None:
            seen.folder, seen.cluster = folder, cluster

        def update_parameters(self, **values: object) -> None:
            seen.values = values

        def map_array(self, function: object, commands: list[list[str]]) -> list[SimpleNamespace]:
            seen.function, seen.commands = function, commands
            return [SimpleNamespace(job_id=f"7_{i}") for i in range(len(commands))]

    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(AutoExecutor=Executor))
    done = sigmazero(
        "submit", "my plan.toml", "--slurm", "--shards", 3, "--trust-code", "--now", "--setup", "ml cuda", "--time", "9"
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.split() == ["7_0", "7_1", "7_2"]
    assert seen.cluster == "slurm"
    assert seen.values["slurm_time"] == "9"
    assert seen.values["slurm_gres"] == "gpu:1"
    assert seen.values["slurm_setup"][-1] == "ml cuda"
    assert [command[-2:] for command in seen.commands] == [["--shard", f"{i}/3"] for i in (1, 2, 3)]
    assert seen.function is subprocess.check_call
    assert seen.commands[0][:3] == [sys.executable, "-m", "sigmazero"]
    done = sigmazero(*seen.commands[0][3:])  # what a job does
    assert done.exit_code == 0, done.output
    assert Path("runs/my plan-part-1-of-3.db").is_file()
