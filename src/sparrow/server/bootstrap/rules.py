"""Access rules of the configuration file, in the words of `sparrow acl add`.

acls:
  - {principal: billing, operations: [read, describe], topic: orders}
  - {principal: "*", operations: all, group: private-, prefix: true, deny: true}
"""

from __future__ import annotations

import re
from typing import Any

from sparrow.base.faults import misfit, suggestion
from sparrow.base.settings import BOOLEAN, TEXT, TEXT_SCHEMA, TEXTS_SCHEMA, Kind
from sparrow.base.shapes import Part, Section, list_of, section_of
from sparrow.broker.access.acls import AclBinding, PatternType, Permission
from sparrow.broker.access.authz import Operation, ResourceType
from sparrow.model.access import CLUSTER_NAME

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "queue": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {each.value.lower(): each for each in Operation if each is not Operation.ANY}
_TYPED = re.compile(r"\w+:.+")


def _read_operations(given: object) -> tuple[Operation, ...]:
    texts = given if isinstance(given, list) else str(given).split(",")
    found = []
    for index, text in enumerate(texts):
        word = TEXT.read(text).strip()
        operation = _OPERATIONS.get(word.lower().replace("_", "").replace("-", ""))
        if operation is None:
            raise misfit(
                f"there is no operation {word[:80]!r}{suggestion(word.lower(), _OPERATIONS)}",
                *([index] if isinstance(given, list) else []),
            )
        found.append(operation)
    if not found:
        raise ValueError("one operation or several, such as read, write, describe or all")
    return tuple(dict.fromkeys(found))


def _read_principal(given: object) -> str:
    name = TEXT.read(given)
    return name if _TYPED.fullmatch(name) else f"User:{name}"


def _make(values: dict[str, Any]) -> tuple[AclBinding, ...]:
    named = [word for word in (*_RESOURCES, "cluster") if values.get(word) not in (None, False)]
    if len(named) != 1:
        raise misfit(
            f"an access rule is about one thing: {', '.join(_RESOURCES)} or cluster; this one "
            f"names {', '.join(named) or 'none'}"
        )
    (word,) = named
    kind = _RESOURCES.get(word, ResourceType.CLUSTER)
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else values[word]
    pattern = PatternType.PREFIXED if values.get("prefix") else PatternType.LITERAL
    permission = Permission.DENY if values.get("deny") else Permission.ALLOW
    rules = tuple(
        AclBinding(kind, name, pattern, values["principal"], values.get("host", "*"), operation, permission)
        for operation in values["operations"]
    )
    _check(rules)
    return rules


def _check(rules: tuple[AclBinding, ...]) -> None:
    from sparrow.broker.access.acl_store import maybe_fault

    for rule in rules:
        fault = maybe_fault(rule)
        if fault is not None:
            raise misfit(fault.text)


_RULE = Section(
    "an access rule",
    {
        "principal": Part(Kind("principal", _read_principal, schema=TEXT_SCHEMA), is_required=True),
        "operations": Part(Kind("operations", _read_operations, schema=TEXTS_SCHEMA), is_required=True),
        **{word: Part(TEXT) for word in _RESOURCES},
        "cluster": Part(BOOLEAN),
        "prefix": Part(BOOLEAN),
        "deny": Part(BOOLEAN),
        "host": Part(TEXT),
    },
)
_LISTS = list_of(section_of(_RULE, _make), "access rules")


def _read_rules(given: object) -> tuple[AclBinding, ...]:
    return tuple(rule for rules in _LISTS.read(given) for rule in rules)


RULES: Kind[tuple[AclBinding, ...]] = Kind(_LISTS.name, _read_rules, schema=_LISTS.schema)
