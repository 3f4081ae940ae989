"""The conformance suite of `Objects`. Subclass it, and give `objects`, an empty store."""

from __future__ import annotations

import pytest

from sparrow.cluster.errors import ObjectMissing
from sparrow.cluster.objects import ObjectInfo, Objects


class ObjectsConformance:
    """The suite."""

    @pytest.fixture
    def objects(self) -> Objects:
        raise NotImplementedError

    async def test_an_object_is_read_as_it_was_put(self, objects: Objects) -> None:
        await objects.put("w/2026112706/one", [b"abc", memoryview(b"xdefx")[1:4], b""])
        assert await objects.get("w/2026112706/one") == b"abcdef"
        assert objects.location

    async def test_parts_are_read(self, objects: Objects) -> None:
        await objects.put("key", [bytes(range(100))])
        assert await objects.get("key", 10, 5) == bytes(range(10, 15))
        assert await objects.get("key", 90) == bytes(range(90, 100))
        assert await objects.get("key", 95, 50) == bytes(range(95, 100))
        assert await objects.get("key", 0, 0) == b""

    async def test_a_put_may_be_repeated(self, objects: Objects) -> None:
        data = bytes(100_000)
        for _ in range(3):
            await objects.put("key", [data])
        assert await objects.get("key") == data

    async def test_an_absent_object_is_missing(self, objects: Objects) -> None:
        for key in ("none", "w/none"):
            with pytest.raises(ObjectMissing, match=key):
                await objects.get(key)
            with pytest.raises(ObjectMissing, match=key):
                await objects.get(key, 5, 5)

    async def test_deleted_objects_are_gone_and_others_stay(self, objects: Objects) -> None:
        for key in ("w/a", "w/b", "x/c"):
            await objects.put(key, [b"1"])
        await objects.delete(["w/a", "none", "x/c"])
        await objects.delete([])
        assert await objects.find() == [ObjectInfo("w/b", 1)]
        with pytest.raises(ObjectMissing):
            await objects.get("w/a")

    async def test_lists_have_the_keys_of_a_prefix_in_order(self, objects: Objects) -> None:
        for key in ("w/02/b", "w/01/a", "w/02/a", "x/0", "w0"):
            await objects.put(key, [key.encode()])
        assert await objects.find("w/02/") == [ObjectInfo("w/02/a", 6), ObjectInfo("w/02/b", 6)]
        assert [each.key for each in await objects.find("w/0")] == ["w/01/a", "w/02/a", "w/02/b"]
        assert [each.key for each in await objects.find("w")] == ["w/01/a", "w/02/a", "w/02/b", "w0"]
        assert await objects.find("none/") == []
        assert len(await objects.find()) == 5
