"""The made-up history of the package equals the output of its script, and has all shapes that the
demonstration needs.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections import Counter
from importlib.resources import files
from pathlib import Path

from sparrow.demo.history import SAMPLE_FILE, Sample

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_sample_history.py"


def test_file_equals_the_output_of_the_script():
    spec = importlib.util.spec_from_file_location("make_sample_history", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    packed = files("sparrow.demo").joinpath(SAMPLE_FILE).read_bytes()
    assert gzip.decompress(packed) == script.text()


def test_history_has_roots_merges_octopuses_and_authors():
    sample = Sample("there is no repository")
    truth = list(sample.truth())
    parents = Counter(len(each) for _, each in truth)
    authors = {json.loads(each.value)["author"] for each in sample.messages()}
    weeks = {json.loads(each.value)["week"] for each in sample.messages()}
    assert sample.count() == len(truth) == 600
    assert (parents[0], sum(count for n, count in parents.items() if n > 1)) == (2, 84)
    assert sum(count for n, count in parents.items() if n > 2) > 5
    assert (len(authors), len(weeks)) == (8, 40)


def test_children_come_first_and_every_commit_leads_to_the_last():
    sample = Sample("")
    truth = dict(sample.truth())
    order = [each.id for each in sample.messages()]
    position = {id_: at for at, id_ in enumerate(order)}
    assert all(position[parent] > position[id_] for id_, parents in truth.items() for parent in parents)
    reached, waiting = set(), [order[0]]
    while waiting:
        reached.add(each := waiting.pop())
        waiting += [parent for parent in truth[each] if parent not in reached]
    assert reached == set(order)


def test_note_says_why_and_that_it_is_made_up():
    assert Sample("no git here").note == "the sample is used, a made-up history: no git here"
