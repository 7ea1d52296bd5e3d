"""Admission: who gets in when all places are taken, and who goes for it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from app.web.server.connection_limits import Admission, Entry

ORDINARY, RESERVED, ALL_TAKEN, CLIENT_TAKEN = Entry


def admission(
    most: int = 3, most_of_client: int = 2, may_close: Callable[[str], bool] = lambda _: True
) -> tuple[Admission[str], list[str]]:
    closed: list[str] = []
    return Admission(most, most_of_client, close=closed.append, may_close=may_close, reserved=2), closed


def test_the_one_that_has_been_idle_for_longest_goes() -> None:
    found, closed = admission()
    for name in "abc":
        assert found.enter(name, None) is ORDINARY
        found.note(name, busy=True)
    for name in "bac":
        found.note(name, busy=False)
    assert [found.enter(name, None) for name in "de"] == [ORDINARY] * 2
    assert closed == ["b", "a"]


def test_one_that_has_sent_no_whole_head_is_idle_too() -> None:
    found, closed = admission()
    assert [found.enter(name, None) for name in "abcd"] == [ORDINARY] * 4
    assert closed == ["a"]


def test_one_with_a_request_stays_however_old() -> None:
    found, closed = admission()
    for name in "abc":
        found.enter(name, None)
    found.note("a", busy=True)  # an event stream
    assert [found.enter(name, None) for name in "defghij"] == [ORDINARY] * 7
    assert "a" not in closed


def test_where_all_have_requests_there_are_a_few_more_places_and_then_none() -> None:
    found, closed = admission()
    for name in "abc":
        found.enter(name, None)
        found.note(name, busy=True)
    entries = []
    for name in "defg":
        entries.append(found.enter(name, None))
        found.note(name, busy=entries[-1] is RESERVED)
    assert entries == [RESERVED, RESERVED, ALL_TAKEN, ALL_TAKEN]
    found.leave("d")
    assert found.enter("h", None) is RESERVED
    found.leave("a")
    assert found.enter("i", None) is ORDINARY
    assert closed == []


def test_silent_ones_do_not_hold_the_places_kept_for_others() -> None:
    found, closed = admission()
    for name in "abc":
        found.enter(name, None)
        found.note(name, busy=True)
    assert [found.enter(name, None) for name in "defg"] == [RESERVED] * 4
    assert closed == ["d", "e"]


def test_one_address_displaces_itself_and_nobody_else() -> None:
    found, closed = admission(most=10)
    found.enter("other", "there")
    assert [found.enter(name, "here") for name in "abcd"] == [ORDINARY] * 4
    assert closed == ["a", "b"]
    for name in "cd":
        found.note(name, busy=True)
    assert found.enter("e", "here") is CLIENT_TAKEN
    assert found.enter("f", "there") is ORDINARY
    found.leave("c")
    assert found.enter("g", "here") is ORDINARY


def test_one_that_has_not_sent_all_is_not_cut_off() -> None:
    found, closed = admission(may_close=lambda name: name != "a")
    assert [found.enter(name, None) for name in "abcd"] == [ORDINARY] * 4
    assert closed == ["b"]


def test_one_that_was_turned_away_changes_nothing_when_it_ends() -> None:
    found, _ = admission(most=1, most_of_client=1)
    found.enter("a", "here")
    found.note("a", busy=True)
    assert found.enter("b", "here") is CLIENT_TAKEN
    found.note("b", busy=False)
    found.leave("b")
    assert found.enter("c", "here") is CLIENT_TAKEN


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["enter", "busy", "idle", "leave"]), st.integers(0, 30), st.sampled_from([None, "p", "q"])
    )
)


@settings(max_examples=300, deadline=None)
@given(events=EVENTS)
def test_there_are_never_more_than_may_be_whatever_comes(events: list[tuple[str, int, str | None]]) -> None:
    """Counted by the test, from what was said: entries, ends, and whom it closed."""
    there: dict[str, str | None] = {}
    closed: list[str] = []

    def close(name: str) -> None:
        closed.append(name)
        del there[name]

    found = Admission[str](5, 3, close=close, reserved=2)
    for number, (event, which, client) in enumerate(events):
        if event == "enter":
            name = f"{number}"
            if found.enter(name, client) in (ORDINARY, RESERVED):
                there[name] = client
        elif there:
            name = sorted(there)[which % len(there)]
            if event == "leave":
                found.leave(name)
                del there[name]
            else:
                found.note(name, busy=event == "busy")
        assert len(there) <= 5 + 2
        assert all(list(there.values()).count(c) <= 3 for c in ("p", "q"))
        assert set(found.places) == set(there)
        assert set(found.idle) <= set(there)
    assert not set(closed) & set(there)
