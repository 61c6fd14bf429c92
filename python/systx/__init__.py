# SPDX-License-Identifier: MIT OR Apache-2.0
"""System transactions for stock Linux: file calls that take effect all or not at all.

    import systx

    with systx.transaction() as tx:
        text = tx.open("/srv/accounts/a").read()
        with tx.open("/srv/accounts/b", "w") as file:
            file.write(text)

An exception in the block aborts the transaction: nothing was changed. At the end of the block it commits, or raises
Conflict if others have changed what it has read or written; `retry` tries again then. A transaction is the thread's
that has begun it. Everything else is in the manual page systx(3), of the library that this package calls.
"""

from ._calls import LibraryMissing, version
from ._files import RawFile
from ._transaction import (
    Conflict,
    Outcome,
    OutOfOrder,
    Paused,
    Transaction,
    TransactionError,
    WouldWait,
    atomically,
    outcome,
    resume,
    retry,
    transaction,
)

__all__ = [
    "Conflict",
    "LibraryMissing",
    "OutOfOrder",
    "Outcome",
    "Paused",
    "RawFile",
    "Transaction",
    "TransactionError",
    "WouldWait",
    "atomically",
    "outcome",
    "resume",
    "retry",
    "transaction",
    "version",
]
