"""A local Apache Kafka from Python packages alone: fetched, formatted, started, stopped."""
