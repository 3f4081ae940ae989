"""Access control lists: the form and meaning of rules, and a table with fast decisions. Pure;
nothing here stores or waits.

The rules are Kafka's (KIP-11, KIP-290 for prefixes):

- A rule names resources by type and pattern: one name (LITERAL), all names (LITERAL "*"), or a
  prefix (PREFIXED).
- It concerns one principal ("User:alice") or all ("User:*"), from one address or all ("*"), for one
  operation or ALL.
- A rule that denies wins over all that allow.
- A permission to READ, WRITE, DELETE or ALTER includes DESCRIBE, and ALTER_CONFIGS includes
  DESCRIBE_CONFIGS. A denial includes nothing.
- A resource that some rule names is closed to all principals that no rule allows. Resources that no
  rule names are not decided here.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from sparrow.base.errors import InvalidArgument
from sparrow.broker.access.authz import Operation, Principal, ResourceType
from sparrow.model.access import CLUSTER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ANY_NAME: Final = "*"
"""As a LITERAL name: all resources of the type."""
ANY_HOST: Final = "*"
ANY_PRINCIPAL: Final = "User:*"


class PatternType(Enum):
    """Ways in which a rule names resources. ANY and MATCH appear in filters only."""

    ANY = "Any"
    MATCH = "Match"
    """All rules that apply to a resource of this name: its own rules, prefixes of it, and "*"."""
    LITERAL = "Literal"
    PREFIXED = "Prefixed"


class Permission(Enum):
    """Effect of a rule. ANY appears in filters only."""

    ANY = "Any"
    DENY = "Deny"
    ALLOW = "Allow"


class AclBinding(Struct, frozen=True):
    """One rule."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclFilter(Struct, frozen=True):
    """Selects rules; None and ANY select all."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def exact(self) -> AclBinding | None:
        """Return the one rule that the filter can select, or None if it may select several."""
        if (
            self.name is None
            or self.principal is None
            or self.host is None
            or self.pattern_type in (PatternType.ANY, PatternType.MATCH)
            or self.resource_type is ResourceType.ANY
            or self.operation is Operation.ANY
            or self.permission is Permission.ANY
        ):
            return None
        return AclBinding(
            self.resource_type,
            self.name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission,
        )

    def selects(self, rule: AclBinding) -> bool:
        """Return True if the filter selects a rule."""
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self._selects_name(rule)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
        )

    def _selects_name(self, rule: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, rule.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is PatternType.MATCH:
            if rule.pattern_type is PatternType.PREFIXED:
                return self.name.startswith(rule.name)
            return rule.name in (self.name, ANY_NAME)
        return self.name == rule.name


def check_rule(rule: AclBinding) -> None:
    """Refuse a rule without a meaning.

    Raises:
        InvalidArgument: says what is wrong.
    """
    for given, wildcard, word in (
        (rule.resource_type, ResourceType.ANY, "resource type"),
        (rule.operation, Operation.ANY, "operation"),
        (rule.permission, Permission.ANY, "permission"),
    ):
        if given is wildcard:
            raise InvalidArgument(f"A rule cannot have {word} Any; that is for filters. Name one.")
    if rule.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidArgument(
            f"A rule cannot have pattern type {rule.pattern_type.value}; it is Literal or Prefixed."
        )
    if not rule.name:
        raise InvalidArgument("A rule must name its resource; the name is empty.")
    if rule.resource_type is ResourceType.CLUSTER and rule.name != CLUSTER_NAME:
        raise InvalidArgument(
            f"The only valid name of the Cluster resource is {CLUSTER_NAME!r}, not {rule.name!r}."
        )
    kind, colon, name = rule.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidArgument(
            f"Could not parse principal {rule.principal!r}: a type and a name are expected with a "
            "colon between, such as User:alice."
        )
    if not rule.host:
        raise InvalidArgument("A rule must have a host; the host is empty. '*' means all hosts.")


class AclTable:
    """A set of rules, and the decisions that follow from them."""

    def __init__(self) -> None:
        self._rules: dict[AclBinding, None] = {}
        self._literal: dict[tuple[ResourceType, str], list[AclBinding]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[AclBinding]] = {}
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}
        """Per type: the lengths of prefixes, with the number of prefixes of each length."""

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[AclBinding]:
        return iter(self._rules)

    def __contains__(self, rule: object) -> bool:
        return rule in self._rules

    def add(self, rule: AclBinding) -> None:
        """Add a rule; adding it again has no effect."""
        if rule in self._rules:
            return
        self._rules[rule] = None
        key = (rule.resource_type, rule.name)
        if rule.pattern_type is PatternType.LITERAL:
            self._literal.setdefault(key, []).append(rule)
            return
        if key not in self._prefixed:
            lengths = self._prefix_lengths.setdefault(rule.resource_type, {})
            lengths[len(rule.name)] = lengths.get(len(rule.name), 0) + 1
        self._prefixed.setdefault(key, []).append(rule)

    def discard(self, rule: AclBinding) -> None:
        """Remove a rule if it is there."""
        if rule not in self._rules:
            return
        del self._rules[rule]
        key = (rule.resource_type, rule.name)
        index = self._literal if rule.pattern_type is PatternType.LITERAL else self._prefixed
        index[key].remove(rule)
        if index[key]:
            return
        del index[key]
        if index is self._prefixed:
            lengths = self._prefix_lengths[rule.resource_type]
            lengths[len(rule.name)] -= 1
            if not lengths[len(rule.name)]:
                del lengths[len(rule.name)]

    def selected(self, by: AclFilter) -> list[AclBinding]:
        """Return the rules that a filter selects, in the order in which they were added."""
        only = by.exact()
        if only is not None:
            return [only] if only in self._rules else []
        return [rule for rule in self._rules if by.selects(rule)]

    def decide(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool | None:
        """Return True or False as the rules decide; None if no rule names the resource."""
        is_named = is_allowed = False
        who = str(principal)
        for rule in self._naming(resource_type, resource):
            is_named = True
            if not _concerns(rule, who, principal.host):
                continue
            if rule.permission is Permission.DENY:
                if rule.operation in (operation, Operation.ALL):
                    return False
            elif rule.operation in _ALLOWED_BY.get(operation, (operation, Operation.ALL)):
                is_allowed = True
        return is_allowed if is_named else None

    def deciding(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> AclBinding | None:
        """Return the rule by which `decide` decides; None if no rule does."""
        who, allowing = str(principal), None
        for rule in self._naming(resource_type, resource):
            if not _concerns(rule, who, principal.host):
                continue
            if rule.permission is Permission.DENY:
                if rule.operation in (operation, Operation.ALL):
                    return rule
            elif rule.operation in _ALLOWED_BY.get(operation, (operation, Operation.ALL)):
                allowing = allowing or rule
        return allowing

    def _naming(self, resource_type: ResourceType, resource: str) -> Iterator[AclBinding]:
        """Return the rules whose pattern matches a resource."""
        yield from self._literal.get((resource_type, resource), ())
        if resource != ANY_NAME:
            yield from self._literal.get((resource_type, ANY_NAME), ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(resource):
                yield from self._prefixed.get((resource_type, resource[:length]), ())


_ALLOWED_BY: Final[dict[Operation, tuple[Operation, ...]]] = {
    Operation.DESCRIBE: (
        Operation.DESCRIBE,
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.ALL,
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL),
}
"""The allowed operations that include an operation; all others are included in themselves and
ALL.
"""


def _concerns(rule: AclBinding, who: str, host: str) -> bool:
    return rule.principal in (who, ANY_PRINCIPAL) and (
        rule.host in (host, ANY_HOST) or _address(rule.host) == _address(host)
    )


@lru_cache(maxsize=4096)
def _address(host: str) -> IPv4Address | IPv6Address | str:
    """Return one form of an address for all its spellings: Java writes "0:0:0:0:0:0:0:1" where
    Python writes "::1".
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return getattr(address, "ipv4_mapped", None) or address


def sorted_rules(rules: Iterable[AclBinding]) -> list[AclBinding]:
    """Return rules in a stable order: by resource, then principal."""
    return sorted(
        rules,
        key=lambda r: (
            r.resource_type.value,
            r.name,
            r.pattern_type.value,
            r.principal,
            r.host,
            r.operation.value,
            r.permission.value,
        ),
    )
