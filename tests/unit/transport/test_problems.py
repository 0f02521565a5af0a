"""Problems with peers, as status and log tell them."""

from __future__ import annotations

import logging

from isthmus_router.transport.problems import LONGEST_REASON, Problems


def test_a_reason_that_a_peer_chooses_is_cut() -> None:
    problems = Problems(logging.getLogger("TRANSPORT"), lambda: 0.0)
    problems.tell("peer", "x" * 250_000)
    (problem,) = problems.recent()
    assert len(problem) == len("peer: ") + LONGEST_REASON
    problems.solved("peer", "x" * 250_000)
    assert not problems.recent()
