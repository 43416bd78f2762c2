"""The one transaction of a commit: what all partitions of a process have to say since the last one."""

from collections.abc import Sequence
from dataclasses import replace

from tocsin.log.port import CommitReceipt, TransactionalProducer
from tocsin.schemas import codec
from tocsin.schemas.topics import TopicNames
from tocsin.streams.families import JOURNAL_KEY
from tocsin.streams.inputs import Consumers
from tocsin.streams.partitions import OwnedPartition


def append(
    producer: TransactionalProducer,
    consumers: Consumers,
    names: TopicNames,
    dirty: Sequence[OwnedPartition],
    release: frozenset[int],
) -> tuple[dict[int, bytes], CommitReceipt]:
    """Effects, changelog, the newest journal row of each partition, and the input offsets: all of it stands, or nothing.

    Returns the journal rows by partition. Raises what TransactionalProducer's methods do; begun and not ended, it is the
    caller's to abort.
    """
    producer.begin()
    journals: dict[int, bytes] = {}
    offsets = {}
    for each in dirty:
        core, view, p = each.core, each.view, each.number
        assert core is not None
        assert view is not None
        for emission in core.effects.emissions:
            producer.produce(
                emission.topic,
                partition=emission.partition,
                key=emission.key,
                value=emission.value,
                headers=emission.headers,
            )
        for key, value in view.changes():
            producer.produce(names.state, partition=p, key=key, value=value)
        journals[p] = codec.encode(core.journal)
        producer.produce(names.state, partition=p, key=JOURNAL_KEY, value=journals[p])
        if p in release:
            released = codec.encode(replace(core.journal, released=True))
            producer.produce(names.journal, partition=p, key=None, value=released)
        offsets.update(consumers.offsets_of(p, core.journal))
    producer.send_offsets(offsets, consumers.metadata())
    return journals, producer.commit()
