"""Writes of connections in turns: none writes for long, and each has its turn."""

from __future__ import annotations

import asyncio

from isthmus_router.write_turns import PIECE_BYTES, TURN_BYTES, WriteTurns, write_turns


class Waiting:
    """A connection for whose peer so many bytes wait."""

    def __init__(self, turns: WriteTurns, waiting: int) -> None:
        self.turns = turns
        self.waiting = waiting
        self.written = 0
        self.pieces = 0

    def write(self) -> None:
        self.turns.write(self)

    def write_piece(self, most: int) -> int:
        size = min(most, self.waiting)
        self.waiting -= size
        self.written += size
        self.pieces += 1
        return size


async def test_a_connection_writes_a_piece_in_an_iteration_until_nothing_is_left() -> None:
    writer = Waiting(write_turns(), 3 * PIECE_BYTES + 1)
    writer.write()
    writer.write()
    assert writer.written == PIECE_BYTES
    for pieces in (2, 3):
        await asyncio.sleep(0)
        assert writer.written == pieces * PIECE_BYTES
    for _ in range(3):
        await asyncio.sleep(0)
    assert writer.waiting == 0
    assert writer.pieces == 4


async def test_all_connections_together_have_a_bound_and_each_has_its_turn() -> None:
    turns = write_turns()
    count = 3 * TURN_BYTES // PIECE_BYTES
    writers = [Waiting(turns, 4 * PIECE_BYTES) for _ in range(count)]
    before = 0
    for _ in range(20):
        for writer in writers:
            writer.write()
        written = sum(writer.written for writer in writers)
        assert written - before <= TURN_BYTES
        assert max(w.written for w in writers) - min(w.written for w in writers) <= 2 * PIECE_BYTES
        before = written
        await asyncio.sleep(0)
    assert before == count * 4 * PIECE_BYTES


async def test_one_that_has_little_to_write_does_not_wait_for_one_that_has_much() -> None:
    turns = write_turns()
    Waiting(turns, 100 * PIECE_BYTES).write()
    writer = Waiting(turns, 1000)
    writer.write()
    assert writer.waiting == 0


async def test_small_writes_are_made_immediately_also_many_of_them() -> None:
    turns = write_turns()
    writer = Waiting(turns, 0)
    for _ in range(TURN_BYTES // 1000):
        writer.waiting = 500
        writer.write()
        assert writer.waiting == 0
    await asyncio.sleep(0)
    for _ in range(TURN_BYTES // 1000):
        writer.waiting = 500
        writer.write()
        assert writer.waiting == 0


async def test_a_connection_whose_write_fails_keeps_no_other_from_its_turn() -> None:
    class Broken(Waiting):
        def write_piece(self, most: int) -> int:
            if self.pieces:
                raise RuntimeError
            return super().write_piece(most)

    turns = write_turns()
    writers = [Broken(turns, 2 * PIECE_BYTES), Waiting(turns, 2 * PIECE_BYTES)]
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for writer in writers:
        writer.write()
    for _ in range(4):
        await asyncio.sleep(0)
    assert writers[1].waiting == 0
