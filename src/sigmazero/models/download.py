"""Downloading published weights: resumable, checked, and in place only when complete."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path

from sigmazero.core import faults
from sigmazero.core.files import disguise, search
from sigmazero.models import zoo
from sigmazero.models.weights import WeightsError, locate, verify
from sigmazero.models.zoo import WeightFile, ZooEntry

CHUNK = 1 << 16
TIMEOUT_SECONDS = 60

Progress = Callable[[int, int | None], None]


class DownloadError(OSError):
    """A download failed or is not possible; the message says what to do."""


class UncheckedDownload(UserWarning):
    """A file was downloaded whose hash is not known, so only its length was compared."""


def fetch(code: str, directory: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Path:
    """Download the weights of a known model and return the path of the (first) file.

    ``progress`` is called with the bytes received so far and the total, or None where the server does not
    tell. An interrupted transfer leaves a ``.part`` file, and the next call goes on from there. A file whose
    hash is not known is fetched whole, its length is compared with what the server said, and a warning tells so.
    """
    entry = zoo.get(code)
    if entry.bundled:
        return locate(entry)[0]
    place = search("models", directory)[0]
    paths = [_fetch(entry, weight, place / weight.file, progress) for weight in entry.weights]
    return paths[0]


def _fetch(entry: ZooEntry, weight: WeightFile, target: Path, progress: Progress | None) -> Path:
    if _in_place(target, weight):
        return target
    if weight.url is None:
        raise DownloadError(
            f"{entry.code} cannot be downloaded automatically. Published at: {entry.source}\n"
            f"Download it there and save it as {target}"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    if weight.sha256 is None:  # parts of two different files would go unnoticed
        part.unlink(missing_ok=True)
    try:
        told = _receive(weight.url, part, progress)
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise DownloadError(
            f"downloading {entry.code} from {weight.url} failed ({error}); fetch it again to go on from where it "
            f"stopped, or get the file by hand from {entry.source} and save it as {target}"
        ) from error
    try:
        verify(part, weight.sha256)
    except WeightsError as error:
        part.unlink()
        raise DownloadError(f"{weight.url} sent a wrong file, which was deleted: {error}") from error
    if weight.sha256 is None:
        _warn(entry, weight, part, told)
    faults.reach("download.complete")
    os.replace(part, target)
    faults.reach("download.placed")
    return target


def _warn(entry: ZooEntry, weight: WeightFile, part: Path, told: int | None) -> None:
    """Say what is not known about a file; refuse one about which nothing is."""
    if told is None:
        part.unlink()
        raise DownloadError(
            f"{weight.url} sent a file that cannot be checked, which was deleted: neither its hash nor its length is "
            f"known; get it by hand from {entry.source}"
        )
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    warnings.warn(
        f"no hash is known for {weight.file}: only its length was checked, {told} bytes; "
        f"its sha256 is {found}, compare it with what {entry.source} says",
        UncheckedDownload,
        stacklevel=4,
    )


def _in_place(target: Path, weight: WeightFile) -> bool:
    if not target.is_file():
        return False
    try:
        verify(target, weight.sha256)
    except WeightsError:  # a wrong file is replaced, once the right one is complete
        return False
    return True


def _receive(url: str, part: Path, progress: Progress | None) -> int | None:
    """Append what is missing to the partial file, or start over where the server cannot resume.

    Returns the length that the server told, None if it did not.
    """
    start = part.stat().st_size if part.exists() else 0
    try:
        with _open(url, start) as response:
            return _store(url, response, part, start, progress)
    except urllib.error.HTTPError as error:
        # 416: the range is empty. Either the file is complete already or it is another one: fetch it afresh.
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not start:
            raise
        part.unlink()
        with _open(url, 0) as response:
            return _store(url, response, part, 0, progress)


def _open(url: str, start: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "sigmazero", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    response: http.client.HTTPResponse = urllib.request.urlopen(
        urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS
    )
    return response


def _store(
    url: str, response: http.client.HTTPResponse, part: Path, start: int, progress: Progress | None
) -> int | None:
    resumes = (
        start > 0
        and response.status == http.HTTPStatus.PARTIAL_CONTENT
        and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
    )
    done = start if resumes else 0
    length = response.headers.get("Content-Length", "")
    total = done + int(length) if length.isascii() and length.isdigit() else None
    _compare(response, part, total if resumes else None)
    chunk = response.read(CHUNK)
    found = None if resumes else disguise(chunk[:512])
    if found:
        raise DownloadError(f"{url} sent {found}; open the address in a browser to see why")
    with part.open("ab" if resumes else "wb") as file:
        while chunk:
            file.write(chunk)
            faults.reach("download.received")
            done += len(chunk)
            if progress:
                progress(done, total)
            chunk = response.read(CHUNK)
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")
    return total


def _compare(response: http.client.HTTPResponse, part: Path, total: int | None) -> None:
    """Refuse to go on with a file whose whole length is another one than what is sent would make of the part."""
    said = response.headers.get("Content-Range", "").rpartition("/")[2]
    if total is not None and said.isascii() and said.isdigit() and int(said) != total:
        part.unlink()
        raise ConnectionError(f"the server has a file of {said} bytes, and what it sends would make {total}")
