"""Which member of its group a consumer is, and when that has to be looked at."""

from tocsin.log.kafka.membership import Membership, parse_metadata, write_metadata


def suspects(membership: Membership) -> bool:
    return membership.is_suspect


def test_what_is_written_is_read_again() -> None:
    assert (7, "m-1") == parse_metadata(write_metadata("group", "m-1", 7))


def test_a_member_that_has_become_another_one_is_suspect_until_it_was_looked_at() -> None:
    now = [write_metadata("g", "m-1", 1)]
    membership = Membership(lambda: now[0])
    membership.renew()
    assert (1, "m-1") == membership.place()
    assert not suspects(membership)
    now[0] = write_metadata("g", "m-2", 3)
    assert membership.place() is None
    assert suspects(membership)


def test_who_is_no_member_is_not_suspected_again_and_again() -> None:
    """Each suspicion is served at once: a worker that cannot join would spin for as long as its broker is away."""
    now = [write_metadata("g", "m-1", 1)]
    membership = Membership(lambda: now[0])
    assert membership.place() is None  # it has not joined yet
    assert not suspects(membership)
    membership.renew()
    now[0] = write_metadata("g", "", -1)
    assert membership.place() is None
    assert suspects(membership)
    membership.lose()
    membership.is_suspect = False
    assert membership.place() is None
    assert not suspects(membership)
