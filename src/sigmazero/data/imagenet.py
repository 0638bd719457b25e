"""ImageNet's validation pictures, opened one by one and only for the rows asked for."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.core.extras import require
from sigmazero.core.text import one_line
from sigmazero.data.errors import DataError
from sigmazero.data.registry import Dataset
from sigmazero.data.source import Array, Source, refuse_disguise

SIDE, SHORTER, CLASSES = 224, 256, 1000
NARROW = 100
WNID = re.compile(r"n\d{8}")
FLAT = "ILSVRC2012_val_*.JPEG"
TRUTHS = ("val.txt", "LOC_val_solution.csv", "ILSVRC2012_validation_ground_truth.txt")
CLASS_LISTS = ("synsets.txt", "LOC_synset_mapping.txt")


def find(dataset: Dataset, folders: list[Path]) -> Source | None:
    """The pictures of the first folder that has them in either layout, or None."""
    resize = dataset.name == "imagenet-resized"
    for folder in folders:
        if not folder.is_dir():
            continue
        if classes := sorted(path for path in folder.iterdir() if path.is_dir() and WNID.fullmatch(path.name)):
            return _source(*_foldered(folder, classes), resize)
        if pictures := sorted(folder.glob(FLAT)):
            return _source(pictures, _flat_labels(folder, pictures), resize)
    return None


def prepare(path: Path, resize: bool) -> Array:
    """One picture as (3, 224, 224) bytes: resized straight, or shorter side to 256 and centre crop."""
    pillow = require("PIL.Image", "data", "reading pictures")
    try:
        with pillow.open(path) as file:
            picture: Any = file.convert("RGB")
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        with path.open("rb") as head:
            refuse_disguise(head.read(64), path)
        raise DataError(f"{path}: is not a readable picture ({one_line(error)}); unpack the archive again") from error
    bilinear = pillow.Resampling.BILINEAR
    if resize:
        picture = picture.resize((SIDE, SIDE), bilinear)
    else:
        width, height = picture.size
        short = min(width, height)
        if max(width, height) > NARROW * short:  # its longer side would grow beyond any memory
            raise DataError(f"{path}: a picture of {width} by {height} is none of ImageNet; unpack the archive again")
        picture = picture.resize((SHORTER * width // short, SHORTER * height // short), bilinear)
        left, top = (round((side - SIDE) / 2) for side in picture.size)
        picture = picture.crop((left, top, left + SIDE, top + SIDE))
    return np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1)


def _source(pictures: list[Path], labels: list[int], resize: bool) -> Source:
    def fetch(rows: list[int]) -> Array:
        images = np.empty((len(rows), 3, SIDE, SIDE), dtype=np.uint8)
        for place, row in enumerate(rows):
            images[place] = prepare(pictures[row], resize)
        return images

    return Source(np.array(labels, dtype=np.int64), fetch, cost=5 * 3 * SIDE * SIDE)


def _foldered(folder: Path, classes: list[Path]) -> tuple[list[Path], list[int]]:
    """Pictures in class order then name order; the label is the class's place among all 1,000."""
    names = _class_names(folder) or [path.name for path in classes]
    # With some classes absent, counting folders would silently shift the labels of all the others.
    if len(names) != CLASSES and not _class_names(folder):
        raise DataError(
            f"{folder}: has {len(names)} class folders instead of {CLASSES}, so labels cannot be counted; add "
            "synsets.txt with all class names (n01440764, ...), one a line, in label order"
        )
    place = {name: label for label, name in enumerate(names)}
    if unknown := [path.name for path in classes if path.name not in place]:
        raise DataError(f"{folder}: class {unknown[0]} is not in the list of classes; complete the list")
    pairs = [
        (picture, place[path.name])
        for path in classes
        for picture in sorted(path.iterdir())
        if picture.suffix.lower() in (".jpeg", ".jpg", ".png")
    ]
    if not pairs:
        raise DataError(f"{folder}: the class folders hold no .JPEG files; unpack the validation archive into them")
    return [picture for picture, _ in pairs], [label for _, label in pairs]


def _class_names(folder: Path) -> list[str]:
    for name in CLASS_LISTS:
        for path in (folder / name, folder.parent / name):
            if path.is_file():
                return [line.split()[0] for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    return []


def _flat_labels(folder: Path, pictures: list[Path]) -> list[int]:
    for name, reader in zip(TRUTHS, (_listed, _kaggle, _devkit), strict=True):
        for path in (folder / name, folder.parent / name):
            if path.is_file():
                labels = reader(path)
                if absent := [picture.stem for picture in pictures if picture.stem not in labels]:
                    raise DataError(f"{path}: has no label for {absent[0]}; get the complete file")
                return [labels[picture.stem] for picture in pictures]
    raise DataError(f"{folder}: has pictures but no labels; put one of {', '.join(TRUTHS)} beside them")


def _listed(path: Path) -> dict[str, int]:
    """Lines of file name and label, counted from 0 in the usual class order."""
    labels = {}
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        match line.split():
            case []:
                continue
            case [name, label] if label.isdigit() and int(label) < CLASSES:
                labels[Path(name).stem] = int(label)
            case _:
                raise DataError(f"{path}, line {number}: {line!r} is not a file name and a label from 0 to 999")
    return labels


def _kaggle(path: Path) -> dict[str, int]:
    """Rows of picture and "class box class box ..."; labels follow from the sorted class names."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.reader(file) if len(row) == 2 and WNID.match(row[1])]
    names = _class_names(path.parent) or sorted({row[1].split()[0] for row in rows})
    return _by_class(path, names, {row[0]: row[1].split()[0] for row in rows})


def _devkit(path: Path) -> dict[str, int]:
    """The development kit numbers classes in an order of its own, explained only by its meta.mat."""
    meta = next((p for p in (path.parent / "meta.mat", path.parent / "data" / "meta.mat") if p.is_file()), None)
    if meta is None:
        raise DataError(f"{path}: numbers classes in the development kit's own order; put the kit's meta.mat beside it")
    synsets = require("scipy.io", "data", f"reading {meta.name}").loadmat(meta, squeeze_me=True)["synsets"]
    names = {int(entry["ILSVRC2012_ID"]): str(entry["WNID"]) for entry in synsets}
    leaves = sorted(name for number, name in names.items() if number <= CLASSES)
    numbers = path.read_text(encoding="utf-8-sig").split()
    if wrong := [number for number in numbers if not number.isdigit() or int(number) not in names]:
        raise DataError(f"{path}: {wrong[0]!r} is not a class number of {meta.name}")
    stems = (f"ILSVRC2012_val_{row:08d}" for row in range(1, len(numbers) + 1))
    return _by_class(path, leaves, {stem: names[int(n)] for stem, n in zip(stems, numbers, strict=True)})


def _by_class(path: Path, names: list[str], classes: dict[str, str]) -> dict[str, int]:
    if len(names) != CLASSES:
        raise DataError(f"{path}: names {len(names)} classes instead of {CLASSES}; add synsets.txt with all of them")
    place = {name: label for label, name in enumerate(names)}
    if unknown := set(classes.values()) - set(place):
        raise DataError(f"{path}: class {min(unknown)} is not in the list of classes; complete the list")
    return {stem: place[name] for stem, name in classes.items()}
