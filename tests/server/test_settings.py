"""Declared options: precedence, places of errors, suggestions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidConfig
from sparrow.base.settings import (
    BOOLEAN,
    PAIRS,
    TEXT,
    Located,
    build,
    choice,
    duration,
    integer,
    nested,
    option,
    options_of,
    resolve,
    size,
)


@dataclass(frozen=True)
class Config:
    name: str = option("name", TEXT, "bird", "A name.")
    port: int = option("web.port", integer(0, 65535), 9094, "A port.")
    open: bool = option("web.open", BOOLEAN, True, "Whether it is open.")
    room_bytes: int = option("room", size(1, 1 << 40), 1024, "Room.", show="1 KiB")
    wait_ms: int = option("wait", duration(0, 1_000_000_000), 500, "Wait.")
    colour: str = option("colour", choice("red", "blue"), "red", "Colour.")
    pairs: dict[str, str] = option("pairs", PAIRS, {}, "Pairs.", secret=True)  # noqa: RUF009 - makes a field


def resolved(flags=None, environment=None, file=None):
    return resolve(options_of(Config), flags=flags or {}, environment=environment or {}, file=file or {})


def test_flag_wins_over_environment_over_file_over_default():
    file = {"web.port": Located(1, "f:1"), "name": Located("file", "f:2"), "colour": Located("blue", "f:3")}
    environment = {"SPARROW_WEB_PORT": "2", "SPARROW_NAME": "environment"}
    found = resolved({"port": "3"}, environment, file)
    assert (found.values["port"], found.values["name"], found.values["colour"]) == (3, "environment", "blue")
    assert found.values["wait_ms"] == 500
    assert found.sources["port"] == "--web-port"
    assert found.sources["name"] == "environment variable SPARROW_NAME"
    assert found.sources["colour"] == "f:3"
    assert found.sources["wait_ms"] == "default"


def test_every_wrong_value_is_named_with_its_place():
    file = {"colour": Located("green", "sparrow.yml:7")}
    with pytest.raises(InvalidConfig) as caught:
        resolved({"port": "x"}, {"SPARROW_WAIT": "5 parsecs"}, file)
    text = caught.value.text
    assert "--web-port: web.port cannot be 'x'; it takes a whole number from 0 to 65535" in text
    assert "environment variable SPARROW_WAIT: wait cannot be '5 parsecs'; it takes a duration" in text
    assert "sparrow.yml:7: colour cannot be 'green'; it takes one of red, blue" in text


def test_unknown_key_gets_a_suggestion_and_its_line():
    with pytest.raises(
        InvalidConfig, match=r"f\.yml:3: there is no option 'web\.prot'; did you mean 'web\.port'\?"
    ):
        resolved(file={"web.prot": Located(1, "f.yml:3")})


def test_misspelt_variable_is_a_warning_but_kubernetes_variables_are_not():
    found = resolved(
        environment={"SPARROW_WEB_PROT": "1", "SPARROW_SERVICE_HOST": "10.0.0.1", "SPARROW_WEB_OPEN": "no"}
    )
    assert found.warnings == [
        "environment variable SPARROW_WEB_PROT is not used; did you mean SPARROW_WEB_PORT?"
    ]
    assert found.values["open"] is False


def test_secret_value_does_not_appear_in_the_error():
    with pytest.raises(InvalidConfig) as caught:
        resolved(environment={"SPARROW_PAIRS": "hunter2"})
    assert "hunter2" not in caught.value.text


def test_pairs_come_from_a_mapping_a_repeated_flag_or_one_text():
    assert resolved(file={"pairs": Located({"a": 1, "b": True}, "f:1")}).values["pairs"] == {
        "a": "1",
        "b": "true",
    }
    assert resolved({"pairs": ["a=1", "b=x=y"]}).values["pairs"] == {"a": "1", "b": "x=y"}
    assert resolved(environment={"SPARROW_PAIRS": "a=1, b=2"}).values["pairs"] == {"a": "1", "b": "2"}


def test_true_is_no_number_and_no_text():
    for name, key in (("port", "web.port"), ("name", "name")):
        with pytest.raises(InvalidConfig, match=key):
            resolved(file={key: Located(True, "f:1")})
        assert name in {each.name for each in options_of(Config)}


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused_with_an_invalid_config(text):
    refused: list[str] = []
    for name in ("port", "open", "room_bytes", "wait_ms", "colour", "pairs"):
        try:
            assert resolved({name: text}).values[name] is not None
        except InvalidConfig as error:
            refused.append(error.text)
    assert all("it takes" in each for each in refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    most: int = option("most", integer(1, 9), 5, "Most.")
    wait_ms: int = option("wait", duration(0, 1000), 500, "Wait.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Oven(Shared):
    heat: int = option("oven.heat", integer(0, 300), 200, "Heat.")
    wait_ms: int = 7
    """A constant here, not the option."""


@dataclass(frozen=True, slots=True)
class Store:
    room_bytes: int = option("room", size(1, 1 << 40), 1024, "Room.")
    cold: bool = option("oven.cold", BOOLEAN, False, "Cold.", name="oven_is_cold")


@dataclass(frozen=True, kw_only=True)
class House:
    oven_side: str = option("oven.side", TEXT, "left", "Side.")
    shared: Shared = nested(Shared)
    oven: Oven = nested(Oven)
    store: Store = nested(Store)


def test_nested_objects_declare_their_options_and_those_of_one_section_stand_together():
    options = options_of(House)
    assert [each.key for each in options] == ["oven.side", "oven.heat", "oven.cold", "most", "wait", "room"]
    names = [each.name for each in options]
    assert names == ["oven_side", "oven_heat", "oven_is_cold", "most", "wait_ms", "room_bytes"]
    assert [each.show for each in options] == ["left", "200", "false", "5", "500ms", "1 KiB"]


def test_an_option_that_several_objects_inherit_has_its_value_in_each():
    house = build(House, {"most": 3, "wait_ms": 9, "oven_heat": 100, "room_bytes": 5, "oven_is_cold": True})
    assert (house.shared, house.oven) == (Shared(most=3, wait_ms=9), Oven(most=3, heat=100))
    assert (house.oven.wait_ms, house.store) == (7, Store(5, True))
    values = {each.name: each.value_in(house) for each in options_of(House)}
    assert build(House, values) == house


def test_without_values_a_configuration_is_that_of_its_defaults():
    assert build(House, {}) == House() == House(oven=Oven(), store=Store(), shared=Shared())
