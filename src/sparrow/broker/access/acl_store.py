"""The stored rules: who may do what, decided from memory, kept in the meta store, changed by administrators.

A fact of kind "acl" is one rule: its key is the JSON array [resource type, name, pattern type, principal, host, operation,
permission] in Kafka's words, its value is the version of that form. So a rule exists once, however often it is made.

`StoredAuthorizer` answers for every verb of the broker, also for each batch published. Without rules and with the default "allow" it
says yes at once; otherwise it remembers its answers until a rule changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import DirectoryUnreadable, InvalidArgument, NewerFormat, SparrowError
from sparrow.broker.access.acls import (
    AclBinding,
    AclFilter,
    AclTable,
    PatternType,
    Permission,
    check_rule,
    sorted_rules,
)
from sparrow.broker.access.authz import (
    ANONYMOUS,
    CLUSTER_NAME,
    SYSTEM,
    Authorizer,
    Operation,
    Principal,
    ResourceType,
    require,
)
from sparrow.broker.changes import Changes
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from sparrow.meta.store import Fact, MetaStore

KIND: Final = "acl"
_VERSION: Final = b"1"
MAX_KEY_BYTES: Final = 4096
"""Of a rule in its stored form."""
MAX_REMEMBERED: Final = 20_000
"""Answers that are kept at a time; names that clients make up must not fill the memory."""
_SOME_NAME: Final = "hardcode"
"""Stands for a name that no rule names, as in Kafka."""
_LOG = logging.getLogger(__name__)

_Question = tuple[str, str, str, Operation, ResourceType, str | None]
"""(name, kind, host of the principal, operation, resource type, resource); None asks whether there is some resource."""


class StoredAuthorizer:
    """Decides by rules. Loop thread only.

    Args:
        super_users: principals ("User:admin") who may do everything.
        allow_unnamed: whether everybody may use a resource that no rule names (Kafka's allow.everyone.if.no.acl.found).
    """

    def __init__(self, super_users: Iterable[str] = (), *, allow_unnamed: bool = True) -> None:
        self.rules = AclTable()
        self._super_users = frozenset(super_users)
        self._allow_unnamed = allow_unnamed
        self._is_open = allow_unnamed
        """Everybody may do everything: nothing has to be looked up."""
        self._answers: dict[_Question, bool] = {}
        self._watchers: list[Callable[[], None]] = []

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool:
        if self._is_open:
            return True
        question = (principal.name, principal.kind, principal.host, operation, resource_type, resource)
        answer = self._answers.get(question)
        if answer is None:
            answer = self._decide(principal, operation, resource_type, resource)
            self._remember(question, answer)
        return answer

    def _remember(self, question: _Question, answer: bool) -> None:
        if len(self._answers) >= MAX_REMEMBERED:
            self._answers.clear()
        self._answers[question] = answer

    def _decide(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool:
        if self.is_super(principal):
            return True
        decided = self.rules.decide(principal, operation, resource_type, resource)
        return self._allow_unnamed if decided is None else decided

    def allows_some(self, principal: Principal, operation: Operation, resource_type: ResourceType) -> bool:
        if self.allows(principal, operation, resource_type, _SOME_NAME):
            return True
        question = (principal.name, principal.kind, principal.host, operation, resource_type, None)
        answer = self._answers.get(question)
        if answer is None:
            answer = self.rules.allows_some(principal, operation, resource_type)
            self._remember(question, answer)
        return answer

    def is_super(self, principal: Principal) -> bool:
        """Whether no rule applies to a principal."""
        return str(principal) in self._super_users or principal.kind == SYSTEM.kind

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` after each change of the rules; returns what ends it."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def change(self, added: Iterable[AclBinding] = (), removed: Iterable[AclBinding] = ()) -> None:
        """Change the rules; they hold from the next question on."""
        for rule in added:
            self.rules.add(rule)
        for rule in removed:
            self.rules.discard(rule)
        self._is_open = self._allow_unnamed and not self.rules
        self._answers.clear()
        for watcher in list(self._watchers):
            try:
                watcher()
            except Exception:  # noqa: BLE001 - one watcher's bug must not fail the change, nor silence the others
                _LOG.exception("a watcher of the access rules failed")


class Acls:
    """The verbs for rules, and their store. Loop thread only.

    Args:
        rules: gets the rules, from `load` on.
        authorizer: who is asked whether somebody may look at the rules and change them.
    """

    def __init__(
        self, meta: MetaStore, rules: StoredAuthorizer, authorizer: Callable[[], Authorizer] | None = None
    ) -> None:
        self._meta = meta
        self._rules = rules
        self._authorizer = authorizer or (lambda: rules)
        self._changes = Changes(meta)

    async def load(self) -> None:
        """Read the rules that earlier runs made.

        Raises:
            DirectoryUnreadable, NewerFormat: a fact is no rule, or one of a later Sparrow. A rule is never left out in silence.
        """
        self._rules.change(added=[_decode(fact) for fact in await self._meta.scan(KIND)])

    async def create(
        self, rules: Sequence[AclBinding], *, principal: Principal = ANONYMOUS
    ) -> list[SparrowError | None]:
        """Make rules; for each None or why it was not made. Durable when it returns, and in force.

        Raises:
            NotAuthorized: it takes ALTER on the cluster.
            DiskFull, StorageFailed: none was made.
        """
        self._require(principal, Operation.ALTER)
        outcomes = [maybe_fault(rule) for rule in rules]
        good = [rule for rule, fault in zip(rules, outcomes, strict=True) if fault is None]
        await self._changes.carry_out(lambda: self._create(good))
        return outcomes

    async def _create(self, rules: Sequence[AclBinding]) -> None:
        new = [rule for rule in dict.fromkeys(rules) if rule not in self._rules.rules]
        await self._changes.write(
            [Put(KIND, encode_key(rule), _VERSION) for rule in new], lambda: self._rules.change(added=new)
        )

    def describe(self, by: AclFilter, *, principal: Principal = ANONYMOUS) -> list[AclBinding]:
        """The rules that a filter selects, by resource.

        Raises:
            NotAuthorized: it takes DESCRIBE on the cluster.
        """
        self._require(principal, Operation.DESCRIBE)
        return sorted_rules(self._rules.rules.selected(by))

    async def delete(
        self, filters: Sequence[AclFilter], *, principal: Principal = ANONYMOUS
    ) -> list[list[AclBinding]]:
        """Delete the rules that each filter selects, and say which. Durable when it returns, and in force.

        Raises:
            NotAuthorized: it takes ALTER on the cluster.
            DiskFull, StorageFailed: none was deleted.
        """
        self._require(principal, Operation.ALTER)
        return await self._changes.carry_out(lambda: self._delete(filters))

    async def _delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        selected: list[list[AclBinding]] = []
        for each in filters:
            selected.append(sorted_rules(self._rules.rules.selected(each)))
            if each.exact() is None:
                await asyncio.sleep(0)  # each looks at all rules; let others have their turn
        doomed = list(dict.fromkeys(rule for rules in selected for rule in rules))
        await self._changes.write(
            [Delete(KIND, encode_key(rule)) for rule in doomed], lambda: self._rules.change(removed=doomed)
        )
        return selected

    async def settle(self) -> None:
        """Wait for changes whose callers went away."""
        await self._changes.settle()

    def _require(self, principal: Principal, operation: Operation) -> None:
        require(self._authorizer(), principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def maybe_fault(rule: AclBinding) -> SparrowError | None:
    """Why a rule cannot be made, or None."""
    try:
        check_rule(rule)
    except InvalidArgument as error:
        return error
    size = len(encode_key(rule).encode())
    if size <= MAX_KEY_BYTES:
        return None
    return InvalidArgument(
        f"A rule of {size} bytes is too long, at most {MAX_KEY_BYTES} are possible; use shorter names or a prefix."
    )


_Key = tuple[ResourceType, str, PatternType, str, str, Operation, Permission]
_decode_key = msgspec.json.Decoder(_Key).decode


def encode_key(rule: AclBinding) -> str:
    """The key of a rule's fact."""
    key: _Key = (
        rule.resource_type,
        rule.name,
        rule.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission,
    )
    return msgspec.json.encode(key).decode()


def _decode(fact: Fact) -> AclBinding:
    if fact.value != _VERSION:
        raise NewerFormat(
            f"The access rule {fact.key} was stored by a newer Sparrow; start that version, or a newer one."
        )
    try:
        return AclBinding(*_decode_key(fact.key))
    except msgspec.DecodeError as error:
        raise DirectoryUnreadable(
            f"The meta store holds an access rule that cannot be read, {fact.key!r}: {error}. Put back a backup of the data"
            " directory."
        ) from error
