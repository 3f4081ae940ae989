"""The stored access rules: decided from memory, kept in the meta store, changed by administrators.

An entry of kind "acl" is one rule: its key is the JSON array [resource type, name, pattern type,
principal, host, operation, permission] in Kafka's words, its value is the version of that form. So
a rule exists once, however often it is created.

`StoredAuthorizer` decides every operation of the broker, including each batch published. For a
resource that no rule names:

- Administration (`ADMINISTRATION`: the cluster, users, delegation tokens) needs a rule or a super
  user as soon as a login is configured (a user, a token, client certificates), there is a super
  user, or the default is "deny".
- Topics, groups and transactional ids follow the default: an explicit "allow" or "deny", else
  "deny" as soon as a login is configured.

Without rules, while nothing is configured, it allows everything at once; otherwise it remembers its
decisions until a rule changes.
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
from sparrow.broker.access.authz import ANONYMOUS, SYSTEM, Operation, Principal, Report, ResourceType
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import names
from sparrow.broker.changes import Changes
from sparrow.meta.store import Delete, Put
from sparrow.model.access import CLUSTER_NAME

if TYPE_CHECKING:
    from sparrow.broker.access.access import Access
    from sparrow.meta.store import Entry, MetaStore

KIND: Final = "acl"
_VERSION: Final = b"1"
MAX_KEY_BYTES: Final = 4096
"""The limit of a rule's stored form."""
MAX_REMEMBERED: Final = 20_000
"""Decisions that are remembered at a time; names that clients make up must not fill the memory."""
_LOG = logging.getLogger(__name__)

ADMINISTRATION: Final = frozenset({ResourceType.CLUSTER, ResourceType.USER, ResourceType.DELEGATION_TOKEN})
"""Resource types whose rights make an administrator: no default ever grants them."""
_RESERVED: Final = frozenset({Operation.WRITE, Operation.DELETE})
"""Operations on reserved topics that are always refused."""
_ADMINISTRATORS_DO: Final = frozenset({Operation.ALTER, Operation.ALL})

_Question = tuple[str, str, str, Operation, ResourceType, str]
"""(name, kind, host of the principal, operation, resource type, resource)."""


class StoredAuthorizer:
    """Authorizer that decides by rules. Loop thread only.

    Args:
        super_users: principals ("User:admin") who may do everything.
        allow_unnamed: True or False if the configuration says explicitly whether all principals may
            use a topic, group or transactional id that no rule names (Kafka's
            allow.everyone.if.no.acl.found); None: only while no login is configured.
        reserved_topics: topics that are never written to or deleted by an operation, not even by
            super users and the broker's own principal.
    """

    def __init__(
        self,
        super_users: Iterable[str] = (),
        *,
        allow_unnamed: bool | None = None,
        reserved_topics: Iterable[str] = (),
    ) -> None:
        self.rules = AclTable()
        self.report_refusal: Report | None = None
        """Called with each refusal; set by the composition of the broker."""
        self._reserved_topics = frozenset(reserved_topics)
        self._super_users = frozenset(super_users)
        self._allow_unnamed = allow_unnamed
        self._has_logins = False
        self._decisions: dict[_Question, bool] = {}
        self._watchers: list[Callable[[], None]] = []
        self._settle_defaults()

    def _settle_defaults(self) -> None:
        """Compute the defaults for resources that no rule names."""
        is_closed = self._allow_unnamed is False
        self._guards_administration = bool(self._has_logins or self._super_users or is_closed)
        self._allows_unnamed = not self._has_logins if self._allow_unnamed is None else self._allow_unnamed
        is_guarded = bool(self._guards_administration or self.rules or self._reserved_topics)
        self._is_open = self._allows_unnamed and not is_guarded
        """True if all principals may do everything: no rule has to be looked up."""
        self._decisions.clear()

    def expect_logins(self) -> None:
        """Note that a login is configured (a user, a token, client certificates). It stays so until
        the next start.
        """
        if self._has_logins:
            return
        self._has_logins = True
        self._settle_defaults()
        self._call_watchers()

    @property
    def lacks_administrator(self) -> bool:
        """Return True if administration needs a right, and neither a super user nor a rule allows
        any principal to ALTER the cluster.
        """
        return (
            self._guards_administration
            and not self._super_users
            and not any(
                rule.resource_type is ResourceType.CLUSTER
                and rule.permission is Permission.ALLOW
                and rule.operation in _ADMINISTRATORS_DO
                for rule in self.rules
            )
        )

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool:
        if self._is_open:
            return True
        question = (principal.name, principal.kind, principal.host, operation, resource_type, resource)
        decision = self._decisions.get(question)
        if decision is None:
            decision = self._decide(principal, operation, resource_type, resource)
            self._remember(question, decision)
        return decision

    def _remember(self, question: _Question, is_allowed: bool) -> None:
        if len(self._decisions) >= MAX_REMEMBERED:
            self._decisions.clear()
        self._decisions[question] = is_allowed

    def _decide(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> bool:
        if (
            operation in _RESERVED
            and resource in self._reserved_topics
            and resource_type is ResourceType.TOPIC
        ):
            return False
        if self.is_super(principal):
            return True
        decided = self.rules.decide(principal, operation, resource_type, resource)
        if decided is not None:
            return decided
        return not self._guards_administration if resource_type in ADMINISTRATION else self._allows_unnamed

    def explain(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, resource: str
    ) -> tuple[bool, str, AclBinding | None]:
        """Return the decision, why it is so in words, and the rule that it comes from, if any."""
        is_allowed = self._decide(principal, operation, resource_type, resource)
        if self.is_super(principal):
            why = "a super user may do everything"
            return is_allowed, why if is_allowed else "nobody may do this to the audit topic", None
        rule = self.rules.deciding(principal, operation, resource_type, resource)
        if rule is not None:
            return is_allowed, "a rule says so", rule
        if self.rules.decide(principal, operation, resource_type, resource) is not None:
            return is_allowed, "there are rules for the resource, and none of them allows this", None
        default = "are allowed" if is_allowed else "are refused"
        return is_allowed, f"no rule names the resource, and such resources {default} by default", None

    def is_super(self, principal: Principal) -> bool:
        """Return True if no rule applies to the principal because it may do everything."""
        return str(principal) in self._super_users or principal.kind == SYSTEM.kind

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` after each change of the rules or the defaults; return a function that
        stops that.
        """
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def change(self, added: Iterable[AclBinding] = (), removed: Iterable[AclBinding] = ()) -> None:
        """Change the rules, with immediate effect."""
        for rule in added:
            self.rules.add(rule)
        for rule in removed:
            self.rules.discard(rule)
        self._settle_defaults()
        self._call_watchers()

    def _call_watchers(self) -> None:
        for watcher in list(self._watchers):
            try:
                watcher()
            except Exception:  # noqa: BLE001 - one watcher's bug must not fail the change, nor silence the others
                _LOG.exception("a watcher of the access rules failed")


class AclService:
    """The operations on rules, and their store. Loop thread only.

    Args:
        rules: gets the rules, from `load` on.
        access: decides who may read and change the rules.
    """

    def __init__(
        self,
        meta: MetaStore,
        rules: StoredAuthorizer,
        access: Access,
        *,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit or Audit()
        self._meta = meta
        self._rules = rules
        self._access = access
        self._changes = Changes(meta)

    async def load(self) -> None:
        """Read the stored rules.

        Raises:
            DirectoryUnreadable, NewerFormat: an entry is no rule, or one of a later Sparrow. A rule
                is never left out silently.
        """
        self._rules.change(added=[_decode(entry) for entry in await self._meta.scan(KIND)])

    def explain(
        self,
        who: Principal,
        operation: Operation,
        resource_type: ResourceType,
        resource: str,
        *,
        principal: Principal = ANONYMOUS,
    ) -> tuple[bool, str, AclBinding | None]:
        """Return whether `who` may do something, why, and by which rule.

        Raises:
            NotAuthorized: needs DESCRIBE on the cluster.
        """
        self._access.require_cluster(principal, Operation.DESCRIBE)
        return self._rules.explain(who, operation, resource_type, resource)

    async def create(
        self, rules: Sequence[AclBinding], *, principal: Principal = ANONYMOUS
    ) -> list[SparrowError | None]:
        """Create rules; return for each None, or why it was not created. Durable and in force when
        it returns.

        Raises:
            NotAuthorized: it needs ALTER on the cluster.
            DiskFull, StorageFailed: none was created.
        """
        texts = [rule_text(rule) for rule in rules]
        with self._audit.act(
            principal, "acl.create", ResourceType.CLUSTER, CLUSTER_NAME, rules=names(texts)
        ) as act:
            self._access.require_cluster(principal, Operation.ALTER)
            outcomes = [maybe_fault(rule) for rule in rules]
            good = [rule for rule, fault in zip(rules, outcomes, strict=True) if fault is None]
            await self._changes.carry_out(lambda: self._create(good))
            act.items(zip(texts, outcomes, strict=True))
            return outcomes

    async def _create(self, rules: Sequence[AclBinding]) -> None:
        new = [rule for rule in dict.fromkeys(rules) if rule not in self._rules.rules]
        await self._changes.write(
            [Put(KIND, encode_key(rule), _VERSION) for rule in new], lambda: self._rules.change(added=new)
        )

    def describe(self, by: AclFilter, *, principal: Principal = ANONYMOUS) -> list[AclBinding]:
        """Return the rules that a filter selects, by resource.

        Raises:
            NotAuthorized: it needs DESCRIBE on the cluster.
        """
        self._access.require_cluster(principal, Operation.DESCRIBE)
        return sorted_rules(self._rules.rules.selected(by))

    async def delete(
        self, filters: Sequence[AclFilter], *, principal: Principal = ANONYMOUS
    ) -> list[list[AclBinding]]:
        """Delete the rules that each filter selects, and return them. Durable and in force when it
        returns.

        Raises:
            NotAuthorized: it needs ALTER on the cluster.
            DiskFull, StorageFailed: none was deleted.
        """
        with self._audit.act(principal, "acl.delete", ResourceType.CLUSTER, CLUSTER_NAME) as act:
            self._access.require_cluster(principal, Operation.ALTER)
            deleted = await self._changes.carry_out(lambda: self._delete(filters))
            act.note(rules=names([rule_text(rule) for rules in deleted for rule in rules]))
            return deleted

    async def _delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        selected: list[list[AclBinding]] = []
        for each in filters:
            selected.append(sorted_rules(self._rules.rules.selected(each)))
            if each.exact() is None:
                await asyncio.sleep(0)  # each filter checks all rules; let other tasks run
        deleted = list(dict.fromkeys(rule for rules in selected for rule in rules))
        await self._changes.write(
            [Delete(KIND, encode_key(rule)) for rule in deleted], lambda: self._rules.change(removed=deleted)
        )
        return selected

    async def settle(self) -> None:
        """Wait for changes whose callers have gone away."""
        await self._changes.settle()


def rule_text(rule: AclBinding) -> str:
    """Return a rule as the audit names it: "Allow User:alice Read Topic Literal 'orders' from
    *".
    """
    return (
        f"{rule.permission.value} {rule.principal} {rule.operation.value} {rule.resource_type.value}"
        f" {rule.pattern_type.value} {rule.name!r} from {rule.host}"
    )


def maybe_fault(rule: AclBinding) -> SparrowError | None:
    """Return why a rule cannot be created, or None."""
    try:
        check_rule(rule)
    except InvalidArgument as error:
        return error
    size = len(encode_key(rule).encode())
    if size <= MAX_KEY_BYTES:
        return None
    return InvalidArgument(
        f"A rule of {size} bytes is too long, at most {MAX_KEY_BYTES} are possible; use shorter "
        "names or a prefix."
    )


_Key = tuple[ResourceType, str, PatternType, str, str, Operation, Permission]
_decode_key = msgspec.json.Decoder(_Key).decode


def encode_key(rule: AclBinding) -> str:
    """Return the key of a rule's entry."""
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


def _decode(entry: Entry) -> AclBinding:
    if entry.value != _VERSION:
        raise NewerFormat(
            f"The access rule {entry.key} was stored by a newer Sparrow; start that version, or a newer one."
        )
    try:
        return AclBinding(*_decode_key(entry.key))
    except msgspec.DecodeError as error:
        raise DirectoryUnreadable(
            f"The meta store holds an access rule that cannot be read, {entry.key!r}: {error}. Put "
            "back a backup of the data"
            " directory."
        ) from error
