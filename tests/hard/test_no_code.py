"""A file from a stranger may fail to load; it never runs code. Each format that can carry code gets some."""

import contextlib
import io
import os
import pickle
import random
import sys
import tarfile
import zipfile

import numpy as np
import pytest
import torch

from sigmazero import data, models
from sigmazero.models import weights

FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "os.fork", "socket.connect")
STARTED: list[str] = []
WATCHING: list[bool] = []
sys.addaudithook(lambda event, _: STARTED.append(event) if WATCHING and event in FORBIDDEN else None)


class Payload:
    """Runs a program when it is unpickled."""

    def __reduce__(self):
        return os.system, ("true",)


def batch(values):
    return pickle.dumps({b"data": values, b"labels": [0, 1]}, 2)


def tar(content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("cifar-10-batches-py/test_batch")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def npz(labels):
    buffer = io.BytesIO()
    np.savez(buffer, images=np.zeros((2, 4, 4), np.uint8), labels=labels)
    return buffer.getvalue()


def checkpoint(content, modern):
    buffer = io.BytesIO()
    torch.save({"state_dict": content}, buffer, _use_new_zipfile_serialization=modern)
    return buffer.getvalue()


def cifar(path):
    return data.load("cifar10", data_dir=path.parent)


GOOD = np.zeros((2, 3072), np.uint8)
READERS = {
    "npz": ("m.npz", data.load, npz(np.arange(2)), npz(np.array([Payload(), 1], object))),
    "cifar": ("test_batch", cifar, batch(GOOD), batch(Payload())),
    "cifar.tar": ("cifar-10-python.tar.gz", cifar, tar(batch(GOOD)), tar(batch(Payload()))),
    "weights": ("m.pth", weights.read, checkpoint({"a": torch.ones(2)}, True), checkpoint({"a": Payload()}, True)),
    "old weights": (
        "m.pth",
        weights.read,
        checkpoint({"a": torch.ones(2)}, False),
        checkpoint({"a": Payload()}, False),
    ),
    "onnx": ("m.onnx", models.load, b"", pickle.dumps(Payload())),
}


def attempt(read, path, content):
    """Read a file and return what was started; a refusal is an answer."""
    path.write_bytes(content)
    STARTED.clear()
    WATCHING.append(True)
    try:
        with contextlib.suppress(Exception):
            read(path)
    finally:
        WATCHING.clear()
    return list(STARTED)


@pytest.mark.parametrize("kind", READERS)
def test_code_in_a_file_is_never_run(kind, tmp_path):
    name, read, good, evil = READERS[kind]
    assert attempt(read, tmp_path / name, evil) == []
    dice = random.Random(0)
    for content in (good, evil):
        for _ in range(30):
            changed = bytearray(content)
            for _ in range(dice.choice((1, 2, 8)) if changed else 0):
                changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
            assert attempt(read, tmp_path / name, bytes(changed)) == []


@pytest.mark.parametrize("kind", [kind for kind in READERS if READERS[kind][2]])
def test_the_same_file_without_code_is_read(kind, tmp_path):
    name, read, good, _ = READERS[kind]
    (tmp_path / name).write_bytes(good)
    assert read(tmp_path / name) is not None


def test_the_watch_sees_a_program(tmp_path):
    def run(path):
        pickle.loads(path.read_bytes())

    assert attempt(run, tmp_path / "f", pickle.dumps(Payload())) == ["os.system"]
    assert attempt(zipfile.ZipFile, tmp_path / "f", npz(np.arange(2))) == []
