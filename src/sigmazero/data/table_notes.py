"""What is said about a table in a TOML file beside it: `adult.toml` for `adult.csv.gz`.

    label = "income"                          the column with the classes
    classes = ["<=50K", ">50K"]               in the order of their numbers; those of the table unless said
    drop = ["fnlwgt"]                         columns that the network does not see
    missing = "?"                             rows that have this text in a column that is used are left out
    encoder = "adult.encoder.json"            a saved encoder, in place of one fitted to the table

    [split]
    column = "split"                          says which part a row belongs to
    part = "test"                             the part that is loaded
    fit = "train"                             the part that gives means and deviations

    [categories]                              columns of words, and the order of the words; or a list of columns
    sex = ["Female", "Male"]

    [change.age]                              what may change, by column: direction, around, cost, lower, upper, grid
    direction = "up"

What `change` does not name may change within what the table shows. `adult.space.toml`, the space of the encoded
features ([spaces](spaces.md)), takes the place of `change` where that is not enough.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sigmazero.core.text import one_line, shown
from sigmazero.data.errors import DataError

_WORDS: dict[type, str] = {str: "a text", list: "a list of texts", dict: "a table"}
_KINDS: dict[str, tuple[type, ...]] = {
    "label": (str,),
    "classes": (list,),
    "drop": (list,),
    "missing": (str,),
    "encoder": (str,),
    "split": (dict,),
    "categories": (dict, list),
    "change": (dict,),
}


@dataclass(frozen=True)
class TableNotes:
    """What the file beside a table says."""

    label: str
    classes: Sequence[str] | None = None
    drop: Sequence[str] = ()
    missing: str | None = None
    encoder: str | None = None
    split: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    change: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> TableNotes:
        """Read them; every unknown word is named."""
        try:
            held = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path}: cannot be read ({one_line(error)}); mend it") from None
        for word, value in held.items():
            if word not in _KINDS:
                raise DataError(f"{path}: there is no {shown(word)!r}; allowed: {', '.join(_KINDS)}")
            kinds = _KINDS[word]
            texts = all(isinstance(one, str) for one in value) if isinstance(value, list) else True
            if not isinstance(value, kinds) or not texts:
                wanted = " or ".join(_WORDS[kind] for kind in kinds)
                raise DataError(f"{path}: {word} = {shown(value)} is not {wanted}; correct it")
        if "label" not in held:
            raise DataError(f'{path}: does not say which column has the classes; write label = "its name"')
        split = held.get("split", {})
        if split and (set(split) - {"column", "part", "fit"} or not {"column", "part"} <= set(split)):
            raise DataError(f"{path}: split has column and part, and perhaps fit; it is {shown(split)}")
        categories = held.pop("categories", {})
        if isinstance(categories, list):
            categories = dict.fromkeys(categories)
        for name, words in categories.items():
            if words is not None and not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
                raise DataError(f"{path}: the words of category {shown(name)!r} are no list of texts; correct it")
        return cls(**held, categories=categories)
