"""Random schedules, and the search for a shorter one that fails as well."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.unit.groups.membership.simulation import Action, Group

LENGTH = 12.0


def orderly(random: Random) -> list[Action]:
    """Members start, leave and die, also at the same time; the network is perfect."""
    places = random.randint(1, 7)
    schedule: list[Action] = [
        (random.choice((0.0, random.uniform(0, 3))), "start", place) for place in range(places)
    ]
    for _ in range(random.randint(0, 10)):
        at = random.uniform(0, LENGTH)
        for _ in range(random.choice((1, 1, 2, 3))):
            place = random.randrange(places)
            action = random.choice(("leave", "crash", "vanish", "start", "start"))
            schedule.append((at, action, place))
            if action in {"crash", "vanish"} and random.random() < 0.5:
                schedule.append((at + random.uniform(0, 0.1), "start", place))
    return schedule


def faulty(random: Random) -> list[Action]:
    """The same in a network that partitions, loses, repeats and reorders, and with members that pause."""
    schedule = orderly(random)
    places = 1 + max(entry[2] for entry in schedule)
    for _ in range(random.randint(1, 8)):
        at = random.uniform(0, LENGTH)
        match random.randrange(6):
            case 0:
                schedule.append((at, "pause", random.randrange(places), random.uniform(0.1, 7)))
            case 1 | 2:
                some = {place for place in range(places) if random.random() < 0.5}
                others = tuple(set(range(places)) - some)
                schedule.append((at, "cut", tuple(some), others))
                if random.random() < 0.8:
                    schedule.append((at, "cut", others, tuple(some)))
                schedule.append((at + random.uniform(0.05, 8), "heal"))
            case 3:
                pair = (random.randrange(places),), (random.randrange(places),)
                schedule.append((at, "cut", *pair))
                schedule.append((at + random.uniform(0.05, 8), "heal"))
            case 4:
                worst = random.choice((0.05, 0.3)), random.choice((0.0, 0.2)), random.choice((0.0, 0.05, 0.5))
                schedule.append((at, "disorder", *worst))
                schedule.append((at + random.uniform(1, 6), "disorder", 0.0, 0.0, 0.0))
            case _:
                schedule.append((at, "suspect", random.randrange(places), random.randrange(places)))
    return schedule


def failure(seed: int, schedule: Sequence[Action], *, strict: bool) -> str | None:
    """What goes wrong in it."""
    try:
        Group(seed, strict=strict).play(schedule)
    except AssertionError as error:
        return str(error) or repr(error)
    return None


def shrink(seed: int, schedule: list[Action], *, strict: bool) -> list[Action]:
    """What is left when no action can be taken away without it going right."""
    at = 0
    while at < len(schedule):
        shorter = schedule[:at] + schedule[at + 1 :]
        if failure(seed, shorter, strict=strict) is None:
            at += 1
        else:
            schedule, at = shorter, 0
    return schedule


def check(seed: int, schedule: list[Action], *, strict: bool) -> None:
    """Fails with the seed and a short schedule."""
    wrong = failure(seed, schedule, strict=strict)
    if wrong is not None:
        short = shrink(seed, sorted(schedule, key=lambda entry: entry[0]), strict=strict)
        again = failure(seed, short, strict=strict)
        raise AssertionError(f"{wrong}\nseed {seed}, schedule {short}: {again}")
