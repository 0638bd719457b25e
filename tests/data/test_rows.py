"""Rows and how they are chosen."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sigmazero.data import DataError, Rows, choose, paper_subset, parse_rows, stratified
from sigmazero.spaces.space import Space


def some_rows(n=6):
    images = torch.arange(n * 4, dtype=torch.float32).reshape(n, 1, 2, 2) / 100
    return Rows(images, torch.arange(n) % 3, torch.arange(n) + 100, "made up")


def test_one_line_says_what_rows_are():
    rows = Rows(torch.tensor([[[0.0, 0.25]], [[0.5, 1.0]]]), torch.tensor([0, 2]), torch.arange(2), "pets")
    assert repr(rows) == "<Rows of pets: 2 of shape (1, 2), labels 0 to 2, values 0 to 1>"
    named = replace(rows, classes=("cat", "cow", "dog"))
    assert repr(named) == "<Rows of pets: 2 of shape (1, 2), 3 classes, values 0 to 1>"
    assert repr(rows.select([])) == "<Rows of pets: 0 of shape (1, 2)>"


def test_the_hash_sees_pixels_labels_shape_and_type_but_not_ids_or_name():
    rows = some_rows()
    # Computed once; a change here would orphan every stored result.
    assert rows.content_hash == "a4fd4dff6a0159cb1226e316bcd50489b48b3122fb70a4192a88ed9fb509661b"
    assert Rows(rows.images.clone(), rows.labels, rows.ids + 1, "else").content_hash == rows.content_hash
    other = rows.images.clone()
    other[3, 0, 1, 1] += 1e-7
    images = (other, rows.images.flatten(1), rows.images.double(), rows.images.half(), rows.images.bfloat16())
    different = [Rows(each, rows.labels, rows.ids, "a") for each in images]
    different += [Rows(rows.images, rows.labels.flip(0), rows.ids, "a"), rows.select("0:5"), rows.select([])]
    assert len({rows.content_hash, *(each.content_hash for each in different)}) == len(different) + 1


def test_select_and_limit_keep_ids_names_and_the_space():
    rows = some_rows()
    assert rows.select([4, 1]).ids.tolist() == [104, 101]
    assert rows.select(slice(1, 3)).labels.tolist() == [1, 2]
    assert sorted(rows.limit(3).labels.tolist()) == [0, 1, 2]
    assert len(rows.limit(99)) == 6
    assert rows.limit(3, seed=1).ids.tolist() == [100 + i for i in choose(6, 3, 1)]
    with pytest.raises(DataError, match="at least 1, got 0"):
        rows.limit(0)
    space = Space(names=["a", "b", "c"], direction={"b": "up"})
    table = Rows(torch.rand(4, 3), torch.arange(4) % 2, torch.arange(4), "t", space=space, classes=("no", "yes"))
    some = table.limit(2, seed=1)
    assert (some.space, some.names, some.classes) == (space, ("a", "b", "c"), ("no", "yes"))


ABC = Space(names=["a", "b", "c"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"images": torch.zeros(4, 3, dtype=torch.uint8)}, "divide 8-bit"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, "labels of table .* shape"),
        ({"labels": torch.zeros(4)}, "int64"),
        ({"images": torch.zeros(4)}, "shape"),
        ({"names": ("a", "b")}, "2 names for 3 features of table"),
        ({"names": ("a", "b", "a")}, "names of table hold 'a' twice"),
        ({"classes": ("no",)}, "label 1 of table has no name"),
        ({"classes": ("no", "no")}, "classes of table hold 'no' twice"),
        ({"space": Space(lower=[0, 1])}, r"table: space: lower of shape \(2,\) does not fit"),
        ({"space": ABC, "names": ("a", "c", "b")}, "not called as in its space"),
        ({"space": Space(direction=[["up"] * 3] * 4)}, "one direction per feature, not per sample"),
    ],
)
def test_what_does_not_fit_together(given, words):
    usual = {"images": torch.rand(4, 3), "labels": torch.tensor([0, 1, 1, 0]), "ids": torch.arange(4), "name": "table"}
    with pytest.raises(DataError, match=words):
        Rows(**{**usual, **given})


def choice(rule, labels, count, seed):
    return stratified(labels, count) if rule == "stratified" else choose(len(labels), count, seed)


@pytest.mark.parametrize("rule", ["choose", "stratified"])
@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.data(), st.integers(-5, 2**40))
def test_choices_are_ascending_distinct_nested_and_stratified_ones_fair(rule, labels, data, seed):
    count = data.draw(st.integers(1, len(labels)))
    rows = choice(rule, labels, count, seed)
    assert rows == sorted(set(rows))
    assert len(rows) == count
    assert set(rows) <= set(range(len(labels)))
    assert set(rows) <= set(choice(rule, labels, data.draw(st.integers(count, len(labels))), seed))
    for label in set(labels) if rule == "stratified" else ():
        share = count * labels.count(label) / len(labels)
        assert abs(sum(labels[row] == label for row in rows) - share) <= 2.5


def test_choices_are_pinned_and_fair():
    assert choose(10_000, 4, seed=7) == [4020, 4454, 7937, 8612]
    assert stratified([row // 100 for row in range(1000)], 10) == [87, 192, 282, 392, 404, 554, 616, 710, 864, 942]
    hits = [sum(row in choose(20, 5, seed) for seed in range(400)) for row in range(20)]
    assert 60 < min(hits) <= max(hits) < 140
    rows = paper_subset(300, 50)
    assert rows == random.Random(1233).sample(list(range(1, 300)), 50)
    with pytest.raises(DataError, match="cannot choose 11 of 10 rows"):
        choose(10, 11, seed=0)
    with pytest.raises(DataError, match="cannot draw 10"):
        paper_subset(10, 10)


@given(st.lists(st.integers(0, 99), unique=True, min_size=1), st.integers(0, 49), st.integers(1, 50), st.integers(1, 9))
def test_lists_strings_tensors_and_spans_agree_with_python(rows, start, length, step):
    assert parse_rows(rows, 100) == parse_rows(torch.tensor(rows), 100) == rows
    assert parse_rows(",".join(map(str, rows)), 100) == rows
    stop, every = start + length, list(range(100))
    assert parse_rows(f"{start}:{stop}:{step}", 100) == every[start:stop:step]
    assert parse_rows(slice(start, stop, step), 100) == every[start:stop:step]
    assert parse_rows(f"{start}:", 100) == every[start:]
    assert parse_rows(f":{stop}", 100) == every[:stop]


@given(st.text(alphabet="0123456789:,- x", max_size=12))
def test_any_text_is_rows_or_a_data_error(text):
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
        ("9:1:-1", "do not fit"),
        ("ten", "cannot read rows 'ten'"),
        ("", "cannot read rows ''"),
        ("1:2:3:4", "cannot read"),
        ("3,5,3", "row 3 is named more than once"),
        ([1.5], "whole numbers, got 1.5"),
        ([True], "whole numbers, got True"),
        (slice(0, 200), "there are 100 rows"),
    ],
)
def test_bad_rows_name_the_value(rows, message):
    with pytest.raises(DataError, match=message):
        parse_rows(rows, 100)
