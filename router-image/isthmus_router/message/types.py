"""The AMQP 1.0 type system as bytes: encoder and decoder of every primitive type and of described values.

AMQP 1.0 part 1 (types). Used for what the router itself reads or writes (routing protocol, management,
address tracking); forwarded messages are never decoded as a whole.

===================  =====================================================================================
AMQP type            Python value (decoded to, encoded from)
===================  =====================================================================================
null, boolean        ``None``, ``bool``
long                 ``int`` (a plain int is a long on the wire, as in other AMQP libraries)
ubyte ... ulong      :class:`UByte`, :class:`UShort`, :class:`UInt`, :class:`ULong`
byte, short, int     :class:`Byte`, :class:`Short`, :class:`Int`
double, float        ``float``, :class:`Float`
decimal32/64/128     :class:`Decimal32`, :class:`Decimal64`, :class:`Decimal128` (raw IEEE 754 bytes)
char, timestamp      :class:`Char`, :class:`Timestamp` (milliseconds since the epoch)
uuid, binary         ``uuid.UUID``, ``bytes``
string, symbol       ``str``, :class:`Symbol`
list, map            ``list`` (a tuple is accepted too), ``dict``
array                :class:`Array`
described value      :class:`Described`
===================  =====================================================================================

The wrappers are subclasses of the natural Python type and compare equal to it: readers need not care
which integer width or string kind a peer chose, while a value decoded and encoded again keeps its type.
Map keys follow Python equality: a map holding both the symbol ``a`` and the string ``a`` keeps the last one.
"""

from .decoder import Allowance, decode, decode_all, decode_first, decode_within
from .encoder import encode, encode_into
from .values import (
    MAX_NESTING,
    MOST_VALUES,
    Array,
    Buffer,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    DecodeError,
    Described,
    Encoded,
    EncodeError,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

__all__ = [
    "MAX_NESTING",
    "MOST_VALUES",
    "Allowance",
    "Array",
    "Buffer",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "DecodeError",
    "Described",
    "EncodeError",
    "Encoded",
    "Float",
    "Int",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "decode",
    "decode_all",
    "decode_first",
    "decode_within",
    "encode",
    "encode_into",
]
