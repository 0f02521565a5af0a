"""What is counted for each site is what it has not acknowledged, whatever happens in which order."""

from __future__ import annotations

from random import Random

import pytest

from isthmus_router.groups.batch import Batch, GroupMessage, decode_batch, make_batch
from isthmus_router.groups.identity import MemberId
from isthmus_router.relay.buffer import Backlog, Buffer
from isthmus_router.relay.settings import RelaySettings, RemoteSite

ORIGINS = [MemberId(bytes([65 + number]) * 16) for number in range(3)]
TARGETS = (None, None, ("sfo",), ("lon",), ())


def settings(*sites: str, most: int = 40) -> RelaySettings:
    return RelaySettings("g", "nyc", "ns/nyc", {site: RemoteSite() for site in sites}, buffer_messages=most)


def batch(origin: MemberId, number: int, targets: tuple[str, ...] | None = None, count: int = 1) -> Batch:
    return make_batch(origin, number, number - 1, "nyc", targets, [GroupMessage("relay/g", b"x" * 9)] * count)


def test_what_a_new_holder_finds_in_its_log_goes_as_it_is_acknowledged() -> None:
    buffer = Buffer(settings("sfo"))
    buffer.adopt(1.0, ORIGINS[0], [batch(ORIGINS[0], number) for number in (3, 4, 5)])
    buffer.adopt(2.0, ORIGINS[0], [batch(ORIGINS[0], number) for number in (1, 2)])
    buffer.acknowledge("sfo", ORIGINS[1], 1)
    buffer.adopt(3.0, ORIGINS[1], [batch(ORIGINS[1], 3)])
    buffer.adopt(3.0, ORIGINS[1], [batch(ORIGINS[1], number) for number in (1, 2)])
    assert buffer.messages == 7
    buffer.acknowledge("sfo", ORIGINS[1], 3)
    for number, left in ((1, 4), (3, 2), (4, 1), (5, 0)):
        buffer.acknowledge("sfo", ORIGINS[0], number)
        assert (buffer.messages, buffer.backlog(3.0, "sfo").messages) == (left, left)


def test_a_site_that_comes_later_is_behind_by_all_that_is_kept() -> None:
    buffer = Buffer(settings("sfo"))
    for number in (1, 2, 3):
        buffer.take(float(number), batch(ORIGINS[0], number))
    buffer.acknowledge("sfo", ORIGINS[0], 1)
    buffer.configure(settings("sfo", "lon"))
    assert buffer.backlog(10.0, "lon") == buffer.backlog(10.0, "sfo") == Backlog(2, buffer.bytes, 8.0)
    buffer.configure(settings("lon"))
    assert buffer.backlog(10.0, "lon").messages == 2


def test_of_dropped_batches_numbers_and_sites_are_remembered_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("isthmus_router.relay.buffer.MOST_REMEMBERED", 400)
    monkeypatch.setattr("isthmus_router.relay.buffer.MOST_REMEMBERED_TOGETHER", 6_000)
    buffer = Buffer(settings("sfo", "lon", most=1))
    origins = [MemberId(number.to_bytes(16)) for number in range(1, 21)]
    sites = tuple(f"{number}-{'x' * 50}" for number in range(250))
    for origin in origins:
        for number in range(1, 500):
            targets = (*sites[number % 5 :], *(("sfo",), ("lon",), ("sfo", "sfo"))[number % 3])
            encoded = batch(origin, number).encoded if number % 64 else batch(origin, number, targets).encoded
            buffer.take(1.0, decode_batch(encoded))
    last, end = origins[-1], 499
    assert sum(len(gone) for gone in buffer._gone.values()) <= 6_000
    dropped = {number: (("sfo",), ("lon",), ("sfo",))[number % 3] for number in range(64, end, 64)}
    late = range(end - 200, end)
    lost = sum("sfo" in dropped.get(number, ("sfo",)) for number in late)
    assert buffer.gone("sfo", last, late.start, end) == (lost, 200 - lost)
    buffer.forget_all(origins)
    assert buffer._remembered == 0


@pytest.mark.parametrize("seed", range(60))
def test_the_backlog_is_that_of_a_count_by_hand(seed: int) -> None:
    random = Random(seed)
    sites = ["sfo", "lon"]
    buffer = Buffer(settings(*sites))
    here: dict[tuple[MemberId, int], tuple[float, Batch]] = {}
    last = dict.fromkeys(ORIGINS, 0)
    for step in range(300):
        now, origin = float(step), random.choice(ORIGINS)
        if random.random() < 0.6:
            last[origin] += 1
            new = batch(origin, last[origin], random.choice(TARGETS), random.randint(1, 3))
            here[origin, new.number] = (now, new)
            buffer.take(now, new)
        elif random.random() < 0.02:
            buffer.forget(origin)
            here = {key: value for key, value in here.items() if key[0] != origin}
        else:
            buffer.acknowledge(random.choice(sites), origin, random.randint(0, last[origin]))
        here = {key: value for key, value in here.items() if key[1] > buffer.relayed(key[0])}
        assert buffer.messages == sum(each.count for _, each in here.values()) <= 40
        for site in sites:
            waiting = [
                (since, each)
                for (member, number), (since, each) in here.items()
                if number > buffer.acknowledged(site, member) and each.is_for(site)
            ]
            assert buffer.backlog(now, site) == Backlog(
                sum(each.count for _, each in waiting),
                sum(each.size for _, each in waiting),
                now - min((since for since, _ in waiting), default=now),
            )
