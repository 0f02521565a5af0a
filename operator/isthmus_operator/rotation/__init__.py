"""Rotation of the certificates of SslProfiles.

`ledger.py` is what is remembered of a profile; `machine.py` decides, without I/O and with the time passed in,
what becomes of it: which certificates are adopted under which ordinal, and which ordinals are retired. Both
platforms use these. `keeper.py` reads and writes ledgers on Kubernetes, where each is a Secret. Who uses which
ordinal is gathered from the routers' reports in `status/usage.py`.
"""

from .ledger import TLS_KEYS, Generation, Ledger, Past
from .machine import Adoption, Change, Refusal, Retirement, Seen, Wish, adopt, retire

__all__ = [
    "TLS_KEYS",
    "Adoption",
    "Change",
    "Generation",
    "Ledger",
    "Past",
    "Refusal",
    "Retirement",
    "Seen",
    "Wish",
    "adopt",
    "retire",
]
