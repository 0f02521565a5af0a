"""The places between TLS, SASL and the engine where each frame of a router is examined before the engine has it.

The gate takes the places of the engine's layers for SASL and AMQP, and of those before them that exchange the protocol
headers: the frames behind a header come in the same bytes. `frames` decides. From the first frame that is refused on
the engine has nothing more, and the collector ends the connection.
"""

from __future__ import annotations

import ctypes
import logging
from enum import Enum
from typing import Any

from cproton_ffi import ffi, lib

from isthmus_flowlog.collector.frames import Frames, Login, RefusedError
from isthmus_router.engine_layers import COUNT, PLACE, PROCESS, Layer, layer

logger = logging.getLogger("AMQP")

_WORD = ctypes.sizeof(ctypes.c_void_p)
_SIZE_BYTES = 4
_END = int(lib.PN_EOS)


class Gate:
    """That of one connection."""

    def __init__(self) -> None:
        self.frames = Frames()
        self._login = Login()
        self.refused: str | None = None
        """Why the connection has to end."""
        self._transport: Any = None
        self._address = 0
        self._most = 0
        """Bytes of a frame."""
        self.unread_seconds = 0.0
        """For how long the router has taken nothing of what there is for it."""
        self._unwritten: tuple[int, int] | None = None
        """Bytes that wait to be written, and frames so far, when that was looked at last; None: nothing waited."""
        self._unwritten_since = 0.0

    def close_in(self, transport: Any) -> None:
        """Let no frame get to the engine by another way. `transport`: of proton, before anything has arrived.

        Raises RuntimeError if that cannot be.
        """
        self._transport = transport  # which the engine then does not free
        self._address = int(ffi.cast("uintptr_t", transport._impl))
        self._most = lib.pn_transport_get_max_frame(transport._impl)
        lib.pn_transport_pending(transport._impl)  # makes the layers
        _gates[self._address] = self
        words = [_word(self._address, place) for place in range(COUNT)]
        if not any(word.value in _AMQP for word in words):
            self.open_up()
            raise RuntimeError("the engine has no layer for AMQP")
        for word in words:
            word.value = _OWN.get(word.value, word.value)

    def open_up(self) -> None:
        """The connection has ended: forget it."""
        if _gates.get(self._address) is not self:
            return
        del _gates[self._address]
        for place in range(COUNT):
            word = _word(self._address, place)
            word.value = _ENGINES.get(word.value or 0, word.value)

    def look(self, now: float) -> None:
        """Find out whether the router takes what there is for it."""
        unwritten = None
        if self._transport is not None and (size := lib.pn_transport_pending(self._transport._impl)) > 0:
            unwritten = size, lib.pn_transport_get_frames_output(self._transport._impl)
        if unwritten is None or unwritten != self._unwritten:
            self._unwritten, self._unwritten_since = unwritten, now
        self.unread_seconds = now - self._unwritten_since

    def pass_login(self, process: Any, place: int, data: int, size: int) -> int:
        """Have the engine process the first frame of a login in `data`, or all of it when the login is over."""
        if self._login.is_over or size == 0:
            return int(process(self._address, place, data, size))
        if size < _SIZE_BYTES or (length := self._length(data)) > size:
            return 0
        mechanism = lib.pn_sasl_get_mech(lib.pn_sasl(self._transport._impl))
        name = ffi.string(mechanism).decode(errors="replace") if mechanism else ""
        self._login.examine(ctypes.string_at(data, length), name)
        return int(process(self._address, place, data, length))

    def pass_on(self, process: Any, place: int, data: int, size: int) -> int:
        """Have the engine process those of the whole frames in `data` that it may have; how much of it was taken."""
        if size == 0:
            return int(process(self._address, place, data, 0))  # the end of all input
        begin = at = 0
        while size - at >= _SIZE_BYTES:
            length = self._length(data + at)
            if length > size - at:
                break
            if not self.frames.admits(ctypes.string_at(data + at, length)):
                taken = self._process(process, place, data + begin, at - begin)
                if taken != at - begin:
                    return begin + taken if taken >= 0 else taken
                begin = at + length
            at += length
        taken = self._process(process, place, data + begin, at - begin)
        return begin + taken if taken >= 0 else taken

    def _length(self, data: int) -> int:
        length = int.from_bytes(ctypes.string_at(data, _SIZE_BYTES))
        if not 2 * _SIZE_BYTES <= length <= self._most:
            raise RefusedError(f"a frame of {length} bytes")
        return length

    def _process(self, process: Any, place: int, data: int, size: int) -> int:
        return int(process(self._address, place, data, size)) if size else 0


class _Next(Enum):
    """What a layer is given."""

    HEADER = 1
    LOGIN = 2
    FRAMES = 3


_gates: dict[int, Gate] = {}
"""By the address of the transport."""


def _word(transport: int, place: int) -> ctypes.c_size_t:
    """The one of a transport that points to the layer at a place."""
    return ctypes.c_size_t.from_address(transport + (PLACE + place) * _WORD)


def _take_input(transport: int, place: int, data: int | None, size: int) -> int:
    """In the place of the engine's function, which raises nothing."""
    gate, word = _gates[transport], _word(transport, place)
    engines = _ENGINES[word.value]
    process, what = _INPUTS[engines]
    word.value = engines  # the function looks at it, and may go on to the next layer
    try:
        if gate.refused is not None:
            return _END
        if what is _Next.LOGIN:
            return gate.pass_login(process, place, data or 0, size)
        if what is _Next.FRAMES:
            return gate.pass_on(process, place, data or 0, size)
        return int(process(transport, place, data, size))
    except RefusedError as error:
        gate.refused = str(error)
    except Exception as error:
        logger.exception("a frame cannot be examined")
        gate.refused = f"a frame cannot be examined: {type(error).__name__}"
    finally:
        word.value = _OWN.get(word.value, word.value)
    return _END


def _give_output(transport: int, place: int, data: int, size: int) -> int:
    """In the place of the engine's function that writes the protocol header, which is followed by another layer."""
    word = _word(transport, place)
    engines = _ENGINES[word.value]
    word.value = engines
    written = int(_OUTPUTS[engines](transport, place, data, size))
    word.value = _OWN.get(word.value, word.value)
    return written


_input, _output = PROCESS(_take_input), PROCESS(_give_output)
_layers: list[Layer] = []
"""Own ones: the engine uses them as long as the process lives."""
_OWN: dict[int, int] = {}
"""Addresses of own layers by those of the engine's in whose place they are."""
_ENGINES: dict[int, int] = {}
"""The other way round."""
_INPUTS: dict[int, tuple[Any, _Next]] = {}
"""The engine's function for input of each, and what that is given."""
_OUTPUTS: dict[int, Any] = {}
"""Those for output that go on to the next layer."""


def _replace(name: str, what: _Next, *, writes_header: bool) -> None:
    engines = layer(name)
    address = ctypes.addressof(engines)
    _INPUTS[address] = PROCESS(engines.process_input), what
    own = Layer.from_buffer_copy(engines)
    own.process_input = ctypes.cast(_input, ctypes.c_void_p).value
    if writes_header:
        _OUTPUTS[address] = PROCESS(engines.process_output)
        own.process_output = ctypes.cast(_output, ctypes.c_void_p).value
    _layers.append(own)
    _OWN[address] = ctypes.addressof(own)
    _ENGINES[ctypes.addressof(own)] = address


_replace("sasl_header_layer", _Next.HEADER, writes_header=True)
_replace("sasl_read_header_layer", _Next.HEADER, writes_header=False)
_replace("sasl_write_header_layer", _Next.LOGIN, writes_header=True)
_replace("sasl_layer", _Next.LOGIN, writes_header=False)
_replace("amqp_header_layer", _Next.HEADER, writes_header=True)
_replace("amqp_read_header_layer", _Next.HEADER, writes_header=False)
_replace("amqp_write_header_layer", _Next.FRAMES, writes_header=True)
_replace("amqp_layer", _Next.FRAMES, writes_header=False)
_AMQP = {ctypes.addressof(layer(name)) for name in ("amqp_header_layer", "amqp_read_header_layer")}
"""Addresses of layers before anything has arrived."""
