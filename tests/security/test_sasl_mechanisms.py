"""Each listener of the Kafka frontend takes and lists the SASL mechanisms that are configured for
it.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

import sparrow.testing
from sparrow.base.errors import InvalidConfig
from tests.kafka_frontend.raw import RawClient, request

USERS = {"ann": "correct horse battery"}


def test_a_listener_lists_and_takes_only_its_own_mechanisms() -> None:
    with sparrow.testing.broker(users=USERS, kafka_sasl_mechanisms=["SCRAM-SHA-512"]) as broker:
        with RawClient(broker.kafka) as raw:
            refused = raw.call(request(17, 1, mechanism="PLAIN"))
            assert refused.error_code is ErrorCode.unsupported_sasl_mechanism
            assert list(refused.mechanisms) == ["SCRAM-SHA-512"]
            assert raw.is_closed()
        with RawClient(broker.kafka) as raw:
            taken = raw.call(request(17, 1, mechanism="SCRAM-SHA-512"))
            assert taken.error_code is ErrorCode.none
            assert list(taken.mechanisms) == ["SCRAM-SHA-512"]


def test_a_listener_without_mechanisms_of_its_own_takes_all() -> None:
    with sparrow.testing.broker(users=USERS) as broker, RawClient(broker.kafka) as raw:
        found = raw.call(request(17, 1, mechanism="PLAIN")).mechanisms
        assert list(found) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_a_mechanism_that_does_not_exist_is_refused_at_the_start() -> None:
    with pytest.raises(InvalidConfig, match=r"kafka\.sasl_mechanisms.*PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        sparrow.testing.broker(kafka_sasl_mechanisms=["GSSAPI"]).__enter__()
