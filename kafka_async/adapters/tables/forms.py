"""What values are, as the arguments of ``scan`` say it."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...config.spelling import did_you_mean
from ...errors import KafkaConfigurationError
from ...values import field, frozen

if TYPE_CHECKING:
    from ..values.columns import BatchDecoder

INFER: Final = "infer"
UTC: Final = "UTC"
"""The ``timezone`` that changes nothing."""
ON_BAD: Final = ("column", "null", "skip", "raise")
"""What ``on_bad`` may be; the first unless something is said."""
_log = logging.getLogger("kafka_async.scan")


@frozen(kw_only=True)
class ValueForm:
    """The arguments about values."""

    on_bad: str
    values: str | None = None
    schema: Any = None
    registry: str | Mapping[str, str | int] | None = field(default=None, repr=False)
    message: str | None = None
    timezone: str | None = None

    @property
    def skips(self) -> bool:
        """Whether records with bad values are left out."""
        return self.on_bad == "skip"

    @property
    def infers(self) -> bool:
        """Whether the fields are found in the first values."""
        return isinstance(self.schema, str) and self.schema == INFER

    def check(self) -> None:
        """Raise ``KafkaConfigurationError`` for what makes no sense, as far as nobody has to be asked."""
        if self.on_bad not in ON_BAD:
            expected = f"expected one of {', '.join(ON_BAD)}{did_you_mean(str(self.on_bad), ON_BAD)}"
            raise KafkaConfigurationError(f"on_bad={self.on_bad!r}: {expected}")
        if self.values is None:
            for name in ("schema", "registry", "message", "timezone"):
                if getattr(self, name) is not None and (name, self.timezone) != ("timezone", UTC):
                    raise KafkaConfigurationError(f"{name} has no meaning without values; values='json', for example")
            if self.on_bad != ON_BAD[0]:  # the default, which has no meaning either
                raise KafkaConfigurationError(
                    f"on_bad={self.on_bad!r} has no meaning without values: no bytes are bad; values='json', for example"
                )
            return
        from ..values.typed import check

        try:
            check(self.values, schema=self.schema, registry=self.registry, message=self.message, timezone=self.timezone)
        except ValueError as error:
            raise KafkaConfigurationError(str(error)) from None
        if self.registry is None and not self.infers:
            self.decoder((), lambda count: None)

    def decoder(self, topics: tuple[str, ...], sample: Callable[[int], Any]) -> "BatchDecoder | None":
        """Return what turns values into columns; ``None``: they stay bytes.

        ``sample`` returns so many values, where fields are to be found in them. Raises ``KafkaConfigurationError``, and what a
        schema registry raises.
        """
        if self.values is None:
            return None
        from ..values.inference import SAMPLE
        from ..values.typed import decoder

        try:
            found = decoder(
                self.values,
                schema=self.schema,
                registry=self.registry,
                on_bad="column" if self.on_bad == "skip" else self.on_bad,
                topics=topics,
                timezone=self.timezone,
                message=self.message,
                sample=sample(SAMPLE) if self.infers else None,
            )
        except ValueError as error:
            raise KafkaConfigurationError(str(error)) from None
        for conflict in found.conflicts:
            _log.warning("%s: %s", "schema='infer'" if self.infers else "schema of the registry", conflict)
        return found
