"""docs/semantics.md, played: whatever its tables say comes of what happens in them."""

import pytest

from tests.unit.streams.stories import PAGE, Story, play, rewritten, stories
from tocsin.schemas.job import CatchUpMode, OverlapMode

STORIES = list(stories(PAGE.read_text()))


@pytest.mark.parametrize("story", STORIES, ids=[story.title for story in STORIES])
def test_an_example_comes_out_as_the_page_says(story: Story) -> None:
    told = list(zip([row.when for row in story.rows], play(story), strict=True))
    assert [(row.when, row.does) for row in story.rows] == told


def test_every_mode_of_every_policy_has_an_example() -> None:
    jobs = "\n".join(story.job for story in STORIES)
    for mode in (*OverlapMode.__args__, *CatchUpMode.__args__):  # type: ignore[attr-defined]
        assert f"overlap: {mode}" in jobs or f"mode: {mode}" in jobs, mode
    assert len(STORIES) == len({story.title for story in STORIES})


def test_an_example_that_is_wrong_would_be_found() -> None:
    page = PAGE.read_text()[: STORIES[0].end]
    wrong = page.replace("10:05 is skipped (overlap)", "10:05 is dispatched", 1)
    assert wrong != page
    assert rewritten(wrong) == page


def test_a_table_that_is_not_read_as_an_example_would_be_found() -> None:
    assert len(STORIES) == PAGE.read_text().count("| when | what happens |")
