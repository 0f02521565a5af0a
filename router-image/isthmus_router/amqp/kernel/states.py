"""States of deliveries, copied from one half of a delivery to the other with all that is in them.

Source: AMQP 1.0 part 3, 3.4 (delivery states).
"""

from __future__ import annotations

from typing import Any

from cproton_ffi.lib import (
    PN_ACCEPTED,
    PN_MODIFIED,
    PN_RECEIVED,
    PN_REJECTED,
    PN_RELEASED,
    pn_delivery_local,
    pn_delivery_remote,
    pn_delivery_remote_state,
    pn_delivery_update,
    pn_disposition_annotations,
    pn_disposition_condition,
    pn_disposition_data,
    pn_disposition_get_section_number,
    pn_disposition_get_section_offset,
    pn_disposition_is_failed,
    pn_disposition_is_undeliverable,
    pn_disposition_set_failed,
    pn_disposition_set_section_number,
    pn_disposition_set_section_offset,
    pn_disposition_set_undeliverable,
)

from isthmus_router.amqp.checked import MOST_DETAIL_BYTES, copy_data, data_size
from isthmus_router.amqp.frames import copy_outcome_condition, room_of_delivery

TERMINAL = frozenset({PN_ACCEPTED, PN_REJECTED, PN_RELEASED, PN_MODIFIED})
_STANDARD = TERMINAL | {0, PN_RECEIVED}


def copy_details(state: int, source: Any, target_delivery: Any) -> None:
    """Copy what belongs to an outcome from the receiver's disposition to the one for the sender."""
    target = pn_delivery_local(target_delivery)
    if source is None:
        return
    remote = pn_delivery_remote(source)
    if state == PN_REJECTED:
        most = min(room_of_delivery(target_delivery), MOST_DETAIL_BYTES)
        copy_outcome_condition(pn_disposition_condition(remote), pn_disposition_condition(target), most)
    elif state == PN_MODIFIED:
        pn_disposition_set_failed(target, pn_disposition_is_failed(remote))
        pn_disposition_set_undeliverable(target, pn_disposition_is_undeliverable(remote))
        annotations = pn_disposition_annotations(remote)
        if data_size(annotations) <= min(room_of_delivery(target_delivery), MOST_DETAIL_BYTES):
            copy_data(annotations, pn_disposition_annotations(target))
    elif state not in TERMINAL:
        copy_data(pn_disposition_data(remote), pn_disposition_data(target))


def has_extension_state(pn: Any) -> bool:
    """Whether the peer has given a delivery a state that is not one of the standard's."""
    return pn_delivery_remote_state(pn) not in _STANDARD


def copy_state(source: Any, target_delivery: Any) -> bool:
    """Copy a state as it is: an outcome, how far the peer is, or one of an extension such as transactions.

    An extension's is not copied if a frame of the target's peer is too small for it: whether it is copied.
    """
    state = pn_delivery_remote_state(source)
    remote, target = pn_delivery_remote(source), pn_delivery_local(target_delivery)
    most = min(room_of_delivery(target_delivery), MOST_DETAIL_BYTES)
    if state not in _STANDARD and data_size(pn_disposition_data(remote)) > most:
        return False
    if state == PN_RECEIVED:
        pn_disposition_set_section_number(target, pn_disposition_get_section_number(remote))
        pn_disposition_set_section_offset(target, pn_disposition_get_section_offset(remote))
    else:
        copy_details(state, source, target_delivery)
    pn_delivery_update(target_delivery, state)
    return True
