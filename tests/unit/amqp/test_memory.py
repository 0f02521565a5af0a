"""What the C library does with small blocks of memory while threads free a lot."""

from __future__ import annotations

import pytest

from isthmus_router.amqp import memory
from isthmus_router.amqp.memory import much_is_freed


def test_small_blocks_are_not_set_aside_while_any_thread_frees_a_lot(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []

    def option(name: int, value: int) -> int:
        set_to.append((name, value))
        return 1

    monkeypatch.setattr(memory, "_set_option", option)
    with much_is_freed():
        with much_is_freed():
            pass
        assert set_to == [(1, 0)]
    assert set_to == [(1, 0), (1, 128)]
    with pytest.raises(KeyError), much_is_freed():
        raise KeyError
    assert set_to == [(1, 0), (1, 128)] * 2
