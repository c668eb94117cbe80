"""The options that only share consumers have."""

from ...values import frozen


@frozen(kw_only=True)
class ShareSettings:
    """Options of share consumers only; ``application/share/options.py`` checks them and says what each means."""

    max_processing_ms: int = 300_000
    bad_record_deliveries: int = 2
    strict_max_records: bool = False
