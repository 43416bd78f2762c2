"""The Kafka adapter of the EventLog port."""

from tocsin.log.kafka.config import InvalidKafkaConfig, KafkaConfig, read_properties
from tocsin.log.kafka.log import KafkaLog

__all__ = ["InvalidKafkaConfig", "KafkaConfig", "KafkaLog", "read_properties"]
