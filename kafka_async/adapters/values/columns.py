"""Batches of records to batches of typed fields: what reads values as tables has of this package.

``decoder`` in ``typed.py`` makes a ``BatchDecoder``. Scans and exports use nothing else here.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    import pyarrow


class BatchDecoder(Protocol):
    """Turns ``getarrow``'s columns into the fields of values. It can be pickled: it is sent to worker processes."""

    @property
    def schema(self) -> "pyarrow.Schema":
        """The fields of ``batch``.

        With ``on_bad="column"`` the last two are ``_corrupt`` (binary) and ``_corrupt_reason`` (string).
        """

    @property
    def needs(self) -> frozenset[str]:
        """The columns of ``getarrow`` that ``batch`` reads.

        ``topic``, ``partition``, ``offset``, ``value``, and ``headers`` where ids of schemas may be in them.
        """

    @property
    def version(self) -> int | None:
        """The version of the registry's schema that names the fields; ``None`` if none does."""

    def begin_reading(self) -> None:
        """Say that the same records may come again: values that are bad for a few are not more for that."""

    def select(self, names: Collection[str]) -> Self:
        """Return a decoder of only these of its fields, in the order of ``schema``; others cost nothing.

        Unknown names are ignored.
        """

    def batch(self, records: "pyarrow.RecordBatch") -> "pyarrow.RecordBatch":
        """Return one row of ``schema`` for each record, in order. ``records`` has at least the columns of ``needs``.

        A null value is null in every field. Raises ``DeserializationError`` with topic, partition and offset for the first bad
        value if ``on_bad`` is ``"raise"``; what a registry raises.
        """
