"""Checkpoints made to mislead, to crash or to fill the memory: one line each, before any memory is taken."""

import io
import os
import pickle
import zipfile

import pytest
import torch
from torch import nn

from sigmazero.models import WeightsError, weights
from tests.hard.bounded import bounded

pytestmark = pytest.mark.slow


def read(path):
    return sorted(weights.read(path))


def refused(path, data=None, *, modern=True):
    """The one line that is said about a file, by a process that has a gigabyte to do it in."""
    if data is not None:
        torch.save(data, path, _use_new_zipfile_serialization=modern)
    said = bounded(read, path)
    assert isinstance(said, str)
    assert said.startswith("WeightsError: ")
    assert "\n" not in said
    assert str(path) in said
    return said


def repacked(path, pickled, **storages):
    """A checkpoint with this pickle, as torch would have stored it."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)
    return path


def text(word):
    return b"X" + len(word).to_bytes(4, "little") + word.encode()


def number(value):
    return b"\x8a\x08" + value.to_bytes(8, "little")


def tensor(count, shape=None, kind="FloatStorage"):
    """The pickle of one tensor whose storage is said to have so many numbers."""
    pid = b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text("s0") + text("cpu") + number(count) + b"tQ"
    size = b"".join(map(number, shape or [count]))
    steps = b"".join(number(0 if shape else 1) for _ in shape or [count])
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + number(0) + b"(" + size + b"t(" + steps + b"t\x89"
    return b"\x80\x02}" + text("w") + made + b"ccollections\nOrderedDict\n)RtRs."


@pytest.mark.parametrize("modern", [True, False])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({0: torch.zeros(1), 1: torch.zeros(1)}, "named 0, 1, not by texts"),
        ({"a": torch.zeros(1), ("b", 2): torch.zeros(1)}, "named ('b', 2), not by texts"),
        ({"a": torch.eye(3).to_sparse()}, "a is sparse; save weight.to_dense()"),
        ({"a": torch.ones(3, device="meta")}, "a is a meta tensor without values"),
        ({"a": torch.ones(2, dtype=torch.cfloat).conj().imag}, "a is a negated or conjugated view"),
        ([torch.zeros(1)], "holds a list, not a state dict"),
    ],
)
def test_what_is_no_weight_is_named(data, words, modern, tmp_path):
    assert words in refused(tmp_path / "w.pt", data, modern=modern)


def test_quantised_weights_are_named(tmp_path):
    data = b"\x80\x02}" + text("w") + b"ctorch._utils\n_rebuild_qtensor\n)Rs."
    assert "w is quantised; save the model as it was before" in refused(repacked(tmp_path / "w.pt", data))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int8, torch.uint8, torch.int64])
def test_weights_of_another_type_do_not_fit(dtype, tmp_path):
    network = nn.Linear(2, 2)
    torch.save({"weight": torch.ones(2, 2).to(dtype), "bias": torch.zeros(2)}, tmp_path / "w.pt")
    with pytest.raises(WeightsError, match=rf"floating point\): weight {dtype} for torch\.float32"):
        weights.load_file(network, tmp_path / "w.pt")


def test_scripts_programs_folders_and_other_archives(tmp_path):
    script = tmp_path / "script.pt"
    with zipfile.ZipFile(script, "w") as archive:
        for name in ("script/data.pkl", "script/code/__torch__.py", "script/constants.pkl"):
            archive.writestr(name, b"")
    assert "is a TorchScript program, not a state dict; save torch.jit.load(FILE).state_dict()" in refused(script)
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), tmp_path / "program.pt2")
    (tmp_path / "program.pt2").rename(tmp_path / "program.pt")
    assert "is an exported program, not a state dict; give it as the model" in refused(tmp_path / "program.pt")
    (tmp_path / "folder.pt").mkdir()
    assert "is a folder; name the file of weights in it" in refused(tmp_path / "folder.pt")
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as archive:
        archive.writestr("images.npy", b"")
    assert "is a zip archive, but no checkpoint" in refused(tmp_path / "other.pt")
    (tmp_path / "safe.pt").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    assert "name that ends in .safetensors" in refused(tmp_path / "safe.pt")


def test_a_checkpoint_that_contains_itself(tmp_path):
    data: dict[str, object] = {"epoch": 1}
    data["state_dict"] = data
    assert "a dictionary with epoch, state_dict" in refused(tmp_path / "w.pt", data)


def nested(levels):
    """A key of tuples inside tuples, whose hash recurses into each."""
    return b"\x80\x02})" + b"\x85" * levels + b"Ns."


def branching(levels):
    """A key of tuples that hold the same tuple twice: few bytes, two to the power of `levels` values."""
    return b"\x80\x02})" + b"q\x00h\x00\x86" * levels + b"Ns."


@pytest.mark.parametrize("make", [nested, branching])
@pytest.mark.parametrize("kind", ["zip", "pickle"])
def test_keys_of_nested_tuples(make, kind, tmp_path):
    path = tmp_path / "w.pt"
    data = make(1_000_000 if make is nested else 60)
    repacked(path, data) if kind == "zip" else path.write_bytes(data)
    assert "it nests or repeats tuples to more than 2000 values" in refused(path)


def test_numbers_that_make_large_tables(tmp_path):
    assert "it numbers a value 4294967295" in refused(
        repacked(tmp_path / "w.pt", b"\x80\x02}r\xff\xff\xff\xff.")
    )  # the memo of the standard reader would take 64 GB
    repeated = b"\x80\x02(ccollections\nOrderedDict\nq\x00](" + b"K\x01K\x02\x86" * 1000 + b"e\x85q\x01"
    repeated += b"h\x00h\x01R" * 20_000 + b"l."
    assert "it repeats its entries" in refused(repacked(tmp_path / "w.pt", repeated))
    assert "more than 2000000 instructions" in refused(repacked(tmp_path / "w.pt", b"\x80\x02" + b"]" * 2_000_002))
    for call in (b"cbuiltins\nbytearray\n", b"ctorch\nFloatStorage\n"):  # asked of nothing real, so nothing is made
        huge = b"\x80\x02}" + text("w") + call + number(40 * 10**9) + b"\x85Rs."
        assert "not a state dict" in refused(repacked(tmp_path / "w.pt", huge))


def test_promises_are_compared_with_the_file(tmp_path):
    path = repacked(tmp_path / "w.pt", tensor(10**10), s0=b"1234")
    assert path.stat().st_size < 2000
    assert "it promises 40000000000 bytes of weights and is" in refused(path)
    buffer = io.BytesIO()
    torch.save({"w": torch.zeros(7)}, buffer, _use_new_zipfile_serialization=False)
    for seven in (b"K\x07", b"\x07\0\0\0\0\0\0\0"):  # in the pickle, and before the numbers
        path.write_bytes(buffer.getvalue().replace(seven, b"M\xff\xff" if seven[0] == 75 else b"\xff" * 7 + b"\0"))
        assert "damaged, incomplete" in refused(path)
    assert "reaches beyond its 1 values" in refused(
        repacked(path, tensor(1).replace(number(1) + b"t(", number(9) + b"t("), s0=bytes(4))
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", tensor(10**7))
        archive.writestr("archive/data/s0", bytes(4 * 10**7))
    assert path.stat().st_size < 10**6
    assert "is packed, which torch never does" in refused(path)


def test_one_number_repeated_to_any_shape(tmp_path, monkeypatch):
    path = repacked(tmp_path / "w.pt", tensor(1, [100_000, 100_000], "HalfStorage"), s0=b"12")
    assert "asks for 40.0 GB of memory and 8.6 GB are allowed; raise SIGMAZERO_MAX_BYTES (now 8589934592)" in refused(
        path
    )
    monkeypatch.setenv("SIGMAZERO_MAX_BYTES", "1000")
    repacked(path, tensor(1, [20, 20], "HalfStorage"), s0=b"12")
    assert "(now 1000)" in refused(path)
    monkeypatch.setenv("SIGMAZERO_MAX_BYTES", "lots")
    assert "SIGMAZERO_MAX_BYTES='lots' is no number of bytes" in refused(path)


def test_an_altered_number_is_noticed(tmp_path):
    path = tmp_path / "w.pt"
    torch.save({"w": torch.full((50,), 0.5)}, path)
    data = path.read_bytes()
    path.write_bytes(data.replace(torch.full((50,), 0.5).numpy().tobytes(), torch.full((50,), 0.25).numpy().tobytes()))
    assert "the checksum of storage '0' is wrong" in refused(path)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.ones(3)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert bounded(read, path) == ["w"]  # saved without checksums


@pytest.mark.parametrize("modern", [True, False])
def test_views_and_shared_storages_are_what_torch_makes_of_them(modern, tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    state = {
        "whole": base,
        "part": base[1:3, ::2],
        "turned": base.T,
        "repeated": torch.ones(1).expand(3, 3),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3),
        "flag": torch.tensor([True, False]),
        "parameter": nn.Parameter(torch.rand(3, dtype=torch.float64)),
    }
    if modern:  # torch reads these from the new format alone
        state |= {"odd": torch.ones(2).to(torch.float8_e4m3fn), "large": torch.tensor([60000], dtype=torch.uint16)}
    torch.save(
        {"model": state, "optimizer": {"state": {0: {"lr": 0.1}}}},
        tmp_path / "w.pt",
        _use_new_zipfile_serialization=modern,
    )
    theirs = torch.load(tmp_path / "w.pt", weights_only=True)["model"]
    ours = weights.read(tmp_path / "w.pt")
    assert list(ours) == list(theirs)
    for key, value in theirs.items():
        assert torch.equal(ours[key], value.float() if value.is_floating_point() else value), key


def test_what_is_beside_the_weights_is_not_read(tmp_path):
    """An optimizer of a gigabyte costs nothing."""
    torch.save({"model": {"w": torch.ones(2)}, "optimizer": {"m": torch.zeros(1)}}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        for name, content in parts.items():
            if not name.endswith("data/1"):
                archive.writestr(name, content)
    assert torch.equal(weights.read(tmp_path / "w.pt")["w"], torch.ones(2))


class Evil:
    def __reduce__(self):
        return os.system, ("touch trace",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_protocol_runs_code(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "(posix.system)" in refused(repacked(tmp_path / "w.pt", pickle.dumps({"w": Evil()}, protocol)))
    assert not (tmp_path / "trace").exists()
