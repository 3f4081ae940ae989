"""The Kafka door: existing Kafka clients connect to it unchanged.

`apis.py` is the table of what is served, `connection.py` the pump, `dispatch.py` the way from a frame to a handler, `handlers/` has one
module for each family of APIs, `codec/` is the bytes.
"""

from sparrow.frontends.kafka.frontend import KafkaFrontend, Listener
from sparrow.frontends.kafka.limits import KafkaLimits

__all__ = ["KafkaFrontend", "KafkaLimits", "Listener"]
