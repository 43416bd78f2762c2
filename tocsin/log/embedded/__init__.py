"""The embedded adapter: a durable log in one process and one directory, on RocksDB."""

from tocsin.log.embedded.log import EmbeddedLog

__all__ = ["EmbeddedLog"]
