"""The shards of a plan as an array of jobs for SLURM: as a script, or submitted at once."""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sigmazero.core.extras import require

PLAIN = re.compile(r"[\w.,:@%+=/-]+", re.ASCII)  # what a directive takes as it is
MOST = 100_000  # shards: more than any plan has batches


@dataclass(frozen=True)
class Job:
    """The shards of a plan, and what each of them asks of the cluster.

    arguments   those of `sigmazero run`, but for the shard
    parts       the stores of the shards, as a shell finds them
    whole       the store that they are to be merged into
    """

    name: str
    arguments: tuple[str, ...]
    shards: int
    parts: str
    whole: Path
    folder: Path
    time: str | None = None
    gpus: str = "1"
    partition: str | None = None
    setup: str | None = None

    def __post_init__(self) -> None:
        """Refuse what would end a directive, or begin another."""
        if not 1 <= self.shards <= MOST:
            raise ValueError(f"shards = {self.shards}: give a number from 1 to {MOST}")
        for name, value in (("time", self.time), ("gpus", self.gpus), ("partition", self.partition)):
            if value is not None and not PLAIN.fullmatch(value):
                raise ValueError(f"{name} = {value!r} is none that SLURM knows; write it without blanks and quotes")

    @property
    def title(self) -> str:
        """What the queue calls it."""
        return re.sub(r"[^\w.-]+", "-", f"sigmazero-{self.name}", flags=re.ASCII)

    @property
    def resource(self) -> str | None:
        """The GPUs of a shard as SLURM counts them; None if it needs none."""
        return None if self.gpus == "0" else f"gpu:{self.gpus}"

    def command(self, number: str) -> list[str]:
        """The words that run one shard."""
        return [sys.executable, "-m", "sigmazero", "run", *self.arguments, "--shard", f"{number}/{self.shards}"]


def script(job: Job) -> str:
    """A script for sbatch."""
    asked = {"job-name": job.title, "array": f"1-{job.shards}", "time": job.time, "gres": job.resource}
    directives = [f"#SBATCH --{name}={value}" for name, value in asked.items() if value is not None]
    directives += [] if job.partition is None else [f"#SBATCH --partition={job.partition}"]
    *words, shard = job.command("$SLURM_ARRAY_TASK_ID")
    merged = shlex.join(["-o", str(job.whole)])
    return "\n".join(
        [
            "#!/bin/bash",
            *directives,
            "#SBATCH --requeue",
            "",
            f"cd -- {shlex.quote(str(job.folder))} || exit 1",
            *([job.setup] if job.setup else []),
            f'exec {shlex.join(words)} "{shard}"',
            "",
            "# A part that was stopped goes on where it was when it is submitted again, such as part 3:",
            "#   sbatch --array=3 job.sh",
            "# When all parts are done:",
            f"#   sigmazero merge {job.parts} {merged}",
            "",
        ]
    )


def send(job: Job) -> list[str]:
    """Submit the shards through submitit; the numbers of the jobs."""
    if job.time is None:
        raise ValueError("submitit would give each part five minutes; say how long one may take, such as 04:00:00")
    submitit = require("submitit", "slurm", "submitting at once", "; or print the script and give it to sbatch")
    executor = submitit.AutoExecutor(folder=job.folder / "runs" / "slurm", cluster="slurm")
    executor.update_parameters(
        name=job.title,
        slurm_time=job.time,
        slurm_gres=job.resource,
        slurm_partition=job.partition,
        slurm_setup=[f"cd -- {shlex.quote(str(job.folder))} || exit 1", *([job.setup] if job.setup else [])],
        slurm_additional_parameters={"requeue": True},
    )
    jobs = executor.map_array(subprocess.check_call, [job.command(str(i + 1)) for i in range(job.shards)])
    return [each.job_id for each in jobs]
