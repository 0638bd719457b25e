from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sigmazero.data import DataError, Rows, choose, paper_subset, parse_rows, stratified
from sigmazero.spaces.space import Space


def some_rows(n: int = 6) -> Rows:
    images = torch.arange(n * 4, dtype=torch.float32).reshape(n, 1, 2, 2) / 100
    return Rows(images, torch.arange(n) % 3, torch.arange(n) + 100, "made up")


def test_hash_is_stable_across_machines_and_versions() -> None:
    # Computed once; a change here would orphan every stored result.
    assert some_rows().content_hash == "a4fd4dff6a0159cb1226e316bcd50489b48b3122fb70a4192a88ed9fb509661b"


def test_hash_sees_pixels_labels_shape_and_type_but_not_ids_or_name() -> None:
    rows = some_rows()
    assert Rows(rows.images.clone(), rows.labels, rows.ids + 1, "else").content_hash == rows.content_hash
    other = rows.images.clone()
    other[3, 0, 1, 1] += 1e-7
    different = [
        Rows(other, rows.labels, rows.ids, "a"),
        Rows(rows.images, rows.labels.flip(0), rows.ids, "a"),
        Rows(rows.images.flatten(1), rows.labels, rows.ids, "a"),
        Rows(rows.images.double(), rows.labels, rows.ids, "a"),
        Rows(rows.images.half(), rows.labels, rows.ids, "a"),
        Rows(rows.images.bfloat16(), rows.labels, rows.ids, "a"),
        rows.select("0:5"),
    ]
    assert len({rows.content_hash, *(r.content_hash for r in different)}) == len(different) + 1


def test_select_and_limit_keep_ids() -> None:
    rows = some_rows()
    assert rows.select([4, 1]).ids.tolist() == [104, 101]
    assert rows.select(slice(1, 3)).labels.tolist() == [1, 2]
    assert sorted(rows.limit(3).labels.tolist()) == [0, 1, 2]
    assert len(rows.limit(99)) == 6
    assert rows.limit(3, seed=1).ids.tolist() == [100 + i for i in choose(6, 3, 1)]
    assert rows.select([]).content_hash != rows.content_hash


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 3, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), "divide 8-bit"),
        (torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64), "shape"),
        (torch.zeros(2, 3), torch.zeros(2), "int64"),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int64), "shape"),
    ],
)
def test_rows_refuse_what_does_not_fit(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Rows(images, labels, torch.arange(2), "made up")


@given(st.integers(0, 300), st.data(), st.integers(-5, 2**40))
def test_choose_is_ascending_distinct_and_nested(n: int, data: st.DataObject, seed: int) -> None:
    count = data.draw(st.integers(0, n))
    rows = choose(n, count, seed)
    assert len(rows) == count
    assert rows == sorted(set(rows))
    assert all(0 <= row < n for row in rows)
    assert set(rows) <= set(choose(n, data.draw(st.integers(count, n)), seed))


def test_choose_is_pinned_and_fair() -> None:
    assert choose(10_000, 4, seed=7) == [4020, 4454, 7937, 8612]
    hits = [sum(row in choose(20, 5, seed) for seed in range(400)) for row in range(20)]
    assert 60 < min(hits) <= max(hits) < 140


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.data())
def test_a_stratified_sample_is_nested_and_has_each_class_in_its_share(labels: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(labels)))
    rows = stratified(labels, count)
    assert rows == sorted(set(rows))
    assert len(rows) == count
    assert set(rows) <= set(stratified(labels, data.draw(st.integers(count, len(labels)))))
    for label in set(labels):
        share = count * labels.count(label) / len(labels)
        assert abs(sum(labels[row] == label for row in rows) - share) <= 2.5


def test_a_stratified_sample_is_pinned() -> None:
    assert stratified([row // 100 for row in range(1000)], 10) == [87, 192, 282, 392, 404, 554, 616, 710, 864, 942]


@given(st.integers(2, 400), st.data())
def test_paper_subset_draws_as_the_paper_did(n: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, n - 1))
    rows = paper_subset(n, count)
    assert 0 not in rows
    assert len(set(rows)) == count
    assert rows == random.Random(1233).sample(list(range(1, n)), count)


def test_impossible_choices_name_the_numbers() -> None:
    with pytest.raises(DataError, match="cannot choose 11 of 10 rows"):
        choose(10, 11, seed=0)
    with pytest.raises(DataError, match="cannot draw 10"):
        paper_subset(10, 10)
    with pytest.raises(DataError, match="at least 1, got 0"):
        some_rows().limit(0)


@given(st.lists(st.integers(0, 99), unique=True, min_size=1))
def test_lists_strings_and_tensors_agree(rows: list[int]) -> None:
    assert parse_rows(rows, 100) == rows
    assert parse_rows(",".join(map(str, rows)), 100) == rows
    assert parse_rows(torch.tensor(rows), 100) == rows


@given(st.integers(0, 49), st.integers(1, 50), st.integers(1, 9))
def test_spans_agree_with_python(start: int, length: int, step: int) -> None:
    stop = start + length
    expected = list(range(100))[start:stop:step]
    assert parse_rows(f"{start}:{stop}:{step}", 100) == expected
    assert parse_rows(slice(start, stop, step), 100) == expected
    assert parse_rows(f"{start}:", 100) == list(range(start, 100))
    assert parse_rows(f":{stop}", 100) == list(range(stop))


@given(st.text(alphabet="0123456789:,- x", max_size=12))
def test_any_text_is_rows_or_a_data_error(text: str) -> None:
    try:
        rows = parse_rows(text, 50)
    except DataError:
        return
    assert rows
    assert all(0 <= row < 50 for row in rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0:101", "there are 100 rows"),
        ("100", "row 100 does not exist"),
        ("-1", "row -1 does not exist"),
        ("5:5", "do not fit"),
        ("9:1:-1", "do not fit"),
        ("0:9:0", "do not fit"),
        ("ten", "cannot read rows 'ten'"),
        ("", "cannot read rows ''"),
        ("1:2:3:4", "cannot read"),
        ("3,5,3", "row 3 is named more than once"),
        ([1.5], "whole numbers, got 1.5"),
        ([True], "whole numbers, got True"),
        (slice(0, 200), "there are 100 rows"),
    ],
)
def test_bad_rows_name_the_value(rows: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_rows(rows, 100)


TABLE: dict[str, Any] = {
    "images": torch.rand(4, 3),
    "labels": torch.tensor([0, 1, 1, 0]),
    "ids": torch.arange(4),
    "name": "table",
}


def test_rows_know_their_space_and_names_whichever_are_chosen() -> None:
    space = Space(names=["a", "b", "c"], direction={"b": "up"})
    rows = Rows(**TABLE, space=space, classes=("no", "yes"))
    assert rows.names == ("a", "b", "c")
    for some in (rows.select([2, 0]), rows.limit(2), rows.limit(2, seed=1)):
        assert (some.space, some.names, some.classes) == (space, rows.names, rows.classes)
    assert rows.content_hash == Rows(**TABLE).content_hash


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"names": ("a", "b")}, "2 names for 3 features of table"),
        ({"names": ("a", "b", "a")}, "names of table hold 'a' twice"),
        ({"classes": ("no",)}, "label 1 of table has no name"),
        ({"classes": ("no", "no")}, "classes of table hold 'no' twice"),
        ({"space": Space(lower=[0, 1])}, r"table: space: lower of shape \(2,\) does not fit"),
        ({"space": Space(names=["a", "b", "c"]), "names": ("a", "c", "b")}, "not called as in its space"),
        ({"space": Space(direction=[["up"] * 3] * 4)}, "one direction per feature, not per sample"),
    ],
)
def test_names_and_spaces_that_do_not_fit(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        Rows(**TABLE, **given)
