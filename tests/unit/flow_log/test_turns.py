"""Sources share the time of the thread that reads their messages."""

from __future__ import annotations

from isthmus_flowlog.collector.turns import MOST_SECONDS, PART, STEP_SECONDS, Turns


def play(turns: Turns, wanted: dict[str, float], seconds: int) -> dict[str, float]:
    """Messages of 10 ms each, as many as each source would take of a second; what each has taken in the last one."""
    taken: dict[str, float] = {}
    for step in range(100 * seconds):
        now = step / 100
        if step % 100 == 0:
            taken = dict.fromkeys(wanted, 0.0)
        turns.tick(now)
        for source, part in wanted.items():
            if int((step + 1) * part) > int(step * part) and turns.may_have_credit(source):
                turns.took(source, 0.01, now)
                taken[source] += 0.01
    return taken


def test_sources_that_take_little_together_are_all_read() -> None:
    wanted = {"one": PART / 2, "two": PART / 3}
    assert all(abs(taken - wanted[source]) < 0.02 for source, taken in play(Turns(0.0), wanted, 10).items())


def test_a_source_that_takes_much_has_what_others_leave() -> None:
    taken = play(Turns(0.0), {"much": 1.0, "little": 0.1}, 10)
    assert abs(taken["little"] - 0.1) < 0.02
    assert abs(taken["much"] - (PART - 0.1)) < 0.05


def test_sources_that_take_much_have_equal_parts() -> None:
    wanted = {f"much-{number}": 1.0 for number in range(4)} | {"little": PART / 10}
    taken = play(Turns(0.0), wanted, 10)
    assert abs(taken["little"] - PART / 10) < 0.02
    assert all(0.05 < taken[f"much-{number}"] < 0.15 for number in range(4))


def test_a_source_is_over_its_share_before_the_next_tick() -> None:
    turns = Turns(0.0)
    turns.took("other", 0.001, 0.0)
    turns.took("much", PART, 0.0)
    assert not turns.may_have_credit("much")
    assert turns.may_have_credit("other")
    assert turns.may_have_credit("new")


def test_what_has_come_is_read_unless_its_source_has_taken_very_much() -> None:
    turns = Turns(0.0)
    turns.took("much", PART, 0.0)
    turns.took("other", PART, 0.0)
    assert not turns.may_have_credit("much")
    assert turns.may_be_read("much")
    turns.took("much", MOST_SECONDS - PART, 0.0)
    assert not turns.may_be_read("much")
    assert turns.may_be_read("other")


def test_time_that_was_taken_is_forgotten() -> None:
    turns = Turns(0.0)
    for number in range(1000):
        turns.took(f"source-{number}", STEP_SECONDS, 0.0)
    assert not turns.may_have_credit("source-0")
    turns.tick(5.0)
    assert turns.may_have_credit("source-0")
    turns.tick(20.0)
    assert not turns._taken
