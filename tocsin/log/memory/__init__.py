"""The in-memory adapter: not kinder than Kafka, and open to every fault that a simulation wants to see."""

from tocsin.log.memory.faults import CommitFault, Faults
from tocsin.log.memory.log import ClientCrashed, MemoryClient, MemoryLog
from tocsin.log.memory.partition import StoredRecord

__all__ = ["ClientCrashed", "CommitFault", "Faults", "MemoryClient", "MemoryLog", "StoredRecord"]
