import hashlib
import io
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from sigmazero.core.files import search
from sigmazero.models import (
    DownloadError,
    UncheckedDownload,
    UnknownModel,
    WeightsError,
    fetch,
    weights,
    zoo,
)
from sigmazero.models.architectures import build
from sigmazero.models.zoo import ZooEntry
from tests.helpers.downloads import Server, serving
from tests.models.conftest import LAYOUT_OF, published_state


def wrapped(state, prefix):
    return {prefix + key: value for key, value in state.items()}


def leftovers(state):
    """What the robustness library saves beside the network."""
    extra = {"module.normalizer.new_mean": torch.zeros(3, 1, 1), "module.attacker.normalize.new_mean": torch.zeros(3)}
    return extra | wrapped(state, "module.model.") | wrapped(state, "module.attacker.model.")


# How the file of an entry differs from the bare state dict of its layout.
PUBLISHED = {
    "M1": dict,
    "M2": dict,
    "C1": lambda s: {"epoch": 9, "state_dict": wrapped(s, "module.")},
    "C2": dict,
    "C3": dict,
    "C4": lambda s: wrapped(s, "1."),
    "C5": dict,
    "C7": lambda s: {
        "state_dict": wrapped(s, "module.model.") | {"module.attacker.model.conv1.weight": s["conv1.weight"]}
    },
    "C8": lambda s: {"state_dict": wrapped(s, "module.")},
    "C9": lambda s: {"mean": torch.zeros(3, 1, 1), "std": torch.ones(3, 1, 1)} | s,
    "C10": lambda s: wrapped(s, "module."),
    "C11": lambda s: {"state_dict": s},
    "C12": lambda s: {"state_dict": s, "epoch": 1},
    "I1": dict,
    "I2": lambda s: {"model": leftovers(s)},
    "I3": lambda s: {"state_dict": wrapped(s, "module.")},
    "I5": lambda s: {"state_dict": wrapped(s, "module.")},
    "I6": lambda s: {"model": leftovers(s), "epoch": 3},
}


def save(entry: ZooEntry, folder: Path, data) -> None:
    for weight in entry.weights:
        path = folder / weight.file
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(data, path)


@pytest.mark.parametrize("code", PUBLISHED)
def test_round_trip_through_a_file_in_the_published_layout(code, tmp_path):
    entry = zoo.get(code)
    state = published_state(LAYOUT_OF[code])
    save(entry, tmp_path, PUBLISHED[code](state))
    network = entry.build()
    if entry.weights[0].sha256 or entry.weights[0].blob:  # the made-up file has another hash, and is given by name
        weights.fill(network, entry, tmp_path / entry.weights[0].file)
    else:
        weights.fill(network, entry, model_dir=tmp_path)
    loaded = network.state_dict()
    parts = [weight.into for weight in entry.weights]
    for key, value in state.items():
        for part in parts:
            assert torch.equal(loaded[part + key], value), key


@pytest.mark.parametrize("modern", [True, False])
def test_old_files_without_batch_counters(modern, tmp_path):
    network, other = zoo.get("resnet20").build(), zoo.get("resnet20").build()
    state = {k: v for k, v in network.state_dict().items() if not k.endswith("num_batches_tracked")}
    data = {"best_prec1": 91.7, "state_dict": wrapped(state, "module.")}
    torch.save(data, tmp_path / "r.th", _use_new_zipfile_serialization=modern)
    weights.fill(other, zoo.get("resnet20"), tmp_path / "r.th")
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in state.items())


def test_what_is_beside_the_weights_and_their_precision_do_not_matter(tmp_path):
    state = {
        "part": torch.arange(24.0).reshape(4, 6)[1:3, ::2],
        "repeated": torch.ones(1).expand(3, 3),
        **{str(kind): torch.rand(3).to(kind) for kind in (torch.float16, torch.bfloat16, torch.float64)},
    }
    whole = {"model": state, "optimizer": {"state": {0: {"lr": 0.1}}}, "epoch": 3}
    whole["network"] = whole  # it may hold itself
    torch.save(whole, tmp_path / "w.pt")
    save_file({key: value.contiguous() for key, value in state.items()}, tmp_path / "w.safetensors")
    for name in ("w.pt", "w.safetensors"):
        read = weights.read(tmp_path / name)
        assert all(torch.equal(read[key], value.float()) for key, value in state.items())


PLAIN, OLD = io.BytesIO(), io.BytesIO()
torch.save(build("smallcnn").state_dict(), PLAIN)
torch.save(build("smallcnn").state_dict(), OLD, _use_new_zipfile_serialization=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n <!DOCTYPE html><html>Google Drive - Virus scan warning</html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"),
        (b"", "an empty file"),
        (b"just some text that is no checkpoint", "not a checkpoint"),
        (bytes(range(200, 256)) * 8, "not a checkpoint"),
        *(
            (whole.getvalue()[: int(share * len(whole.getvalue()))], "damaged, incomplete, or not a checkpoint")
            for whole in (PLAIN, OLD)
            for share in (0.0001, 0.01, 0.5, 0.999)
        ),
    ],
)
@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_files_that_are_no_weights(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=message) as error:
        weights.read(tmp_path / name)
    assert "\n" not in str(error.value)


def test_an_altered_number_is_noticed(tmp_path):
    """Torch does not compare checksums."""
    path, one, other = tmp_path / "w.pt", torch.full((50,), 0.5), torch.full((50,), 0.25)
    torch.save({"w": one}, path)
    path.write_bytes(path.read_bytes().replace(one.numpy().tobytes(), other.numpy().tobytes()))
    assert torch.equal(torch.load(path, weights_only=True)["w"], other)
    with pytest.raises(WeightsError, match="damaged"):
        weights.read(path)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": one}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    assert torch.equal(weights.read(path)["w"], one)  # saved without checksums


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"epoch": 3, "optimizer": {}}, "a dictionary with epoch, optimizer, not a state dict"),
        (torch.zeros(3), "a Tensor, not a state dict"),
        ({}, "a dictionary with nothing, not a state dict"),
        ({0: torch.zeros(1)}, "a dictionary with 0"),
        (nn.Linear(2, 2), r"torch\.nn\.modules\.linear\.Linear.*save model\.state_dict\(\)"),
    ],
)
def test_checkpoints_without_a_state_dict(data, message, tmp_path):
    torch.save(data, tmp_path / "w.pt")
    with pytest.raises(WeightsError, match=message):
        weights.read(tmp_path / "w.pt")


def test_look_up_order(tmp_path, monkeypatch):
    home = tmp_path / "home"
    places = [tmp_path / "given", home / "models", home, tmp_path / "cache" / "sigmazero" / "models"]
    monkeypatch.setenv("SIGMAZERO_HOME", str(home))
    monkeypatch.setattr(sys, "platform", "linux")
    assert search("models", tmp_path / "given") == places
    entry = zoo.get("C1")
    for place in reversed(places):  # each file found hides the ones after it
        place.mkdir(parents=True, exist_ok=True)
        (place / "Carmon2019Unlabeled.pt").write_bytes(b"x")
        assert weights.locate(entry, places[0]) == [place / "Carmon2019Unlabeled.pt"]
    nested = places[0] / "cifar10" / "Linf" / "Carmon2019Unlabeled.pt"
    nested.parent.mkdir(parents=True)
    nested.write_bytes(b"x")
    assert weights.locate(entry, places[0]) == [nested]


# Downloads

CONTENT = io.BytesIO()
torch.save({"w": torch.rand(5000, generator=torch.Generator().manual_seed(0))}, CONTENT)
BYTES = CONTENT.getvalue()
SHA = hashlib.sha256(BYTES).hexdigest()
ALTERED = BYTES[:9000] + b"12345678" + BYTES[9008:]
BLOB = hashlib.sha1(b"blob %d\0" % len(BYTES) + BYTES).hexdigest()


@pytest.fixture
def published(monkeypatch):
    """Publish one model on a server here; call it with what is known of the file and get the server."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(BYTES) as server:

        def publish(known: str) -> Server:
            url = f'url = "http://127.0.0.1:{server.server_port}/x1.pt"'
            entries = zoo.parse(
                '[X1]\ntitle = "x"\narchitecture = "smallcnn"\ndataset = "mnist"\nthreat_model = "none"\n'
                'input_size = [1, 28, 28]\nsource = "the page of X1"\n'
                f'weights = [{{ file = "deep/x1.pt", {url}{known} }}]\n'
            )
            monkeypatch.setattr(zoo, "entries", lambda: entries)
            return server

        yield publish


@pytest.mark.parametrize("known", [f', sha256 = "{SHA}"', f', sha256 = "{SHA[:8]}"', f', blob = "{BLOB}"', ""])
def test_a_download_ends_in_place(published, known, tmp_path, monkeypatch):
    server = published(known)
    monkeypatch.setenv("SIGMAZERO_HOME", str(tmp_path))
    target = tmp_path / "models" / "deep" / "x1.pt"
    if not known:
        with pytest.warns(UncheckedDownload, match=SHA):
            assert fetch("x1") == target
    else:
        assert fetch("x1") == target
        target.write_bytes(b"wrong")
        assert fetch("X1") == target
    assert target.read_bytes() == BYTES
    assert fetch("X1") == target
    assert server.asked == (2 if known else 1)  # the right file is not downloaded again
    assert [each.name for each in target.parent.iterdir()] == ["x1.pt"]


@pytest.mark.parametrize("known", ["", f', blob = "{BLOB}"', f', sha256 = "{SHA}"'])
@pytest.mark.parametrize(
    "fault",
    [
        {"content": b"<!DOCTYPE html><html>sign in</html>"},
        {"cut": 9000},
        {"status": 404},
        {"content": ALTERED},
    ],
)
def test_a_wrong_file_leaves_nothing(published, known, fault, tmp_path):
    server = published(known)
    for name, value in fault.items():
        setattr(server, name, value)
    with pytest.raises(DownloadError, match="the page of X1"):
        fetch("X1", tmp_path)
    assert not list((tmp_path / "deep").iterdir())


def test_what_cannot_be_downloaded_names_the_page_and_the_place(tmp_path):
    with pytest.raises(DownloadError, match=r"drive\.google\.com") as caught:
        fetch("C1", tmp_path)
    assert str(tmp_path / "cifar10" / "Linf" / "Carmon2019Unlabeled.pt") in str(caught.value)
    with pytest.raises(UnknownModel):
        fetch("nothing", tmp_path)


def test_clashing_keys_are_refused():
    with pytest.raises(WeightsError, match="two entries"):
        weights.tidy({"a": torch.zeros(1), "module.a": torch.ones(1)}, ["a"])
