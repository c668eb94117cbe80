"""Tokens for Amazon MSK with IAM, which takes a signed URL as an OAUTHBEARER token.

AWS's own signer (aws-msk-iam-sasl-signer-python) finds the credentials and signs. It may ask the network for credentials, so it
runs in a thread.
"""

import re
import time
from collections.abc import Callable
from typing import Any, Final

from ...errors import AuthenticationFailedError, KafkaConnectionError, said
from .conversation import shown
from .threads import on_thread
from .tokens import CachingTokenProvider, Token

_REGION: Final = re.compile(r"[a-z0-9-]+")


class MskTokenProvider(CachingTokenProvider):
    """Bearer tokens for an Amazon MSK cluster in ``region``, with ``sasl_mechanism="OAUTHBEARER"``.

    Credentials come from where AWS's tools find them: the environment, the profile, the role of the machine. ``profile`` names a
    profile, ``role_arn`` a role to assume, as session ``session_name``; only one of the two may be given.

    Raises ``ValueError`` for both and for a name that is no region, and ``ImportError`` without the extra ``msk-iam``.
    """

    def __init__(
        self, region: str, *, profile: str | None = None, role_arn: str | None = None, session_name: str = "kafka-async"
    ) -> None:
        super().__init__()
        if not _REGION.fullmatch(region):
            raise ValueError(f"region={region!r:.60}: expected the name of an AWS region, such as 'eu-west-1'")
        if profile is not None and role_arn is not None:
            raise ValueError("profile and role_arn are both given; expected one of them")
        self._region = region
        self._sign = _signer(region, profile, role_arn, session_name)
        self._had_credentials = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._region!r})"

    async def fetch(self) -> Token:
        """Return a new token. Raises ``AuthenticationFailedError`` if AWS's signer finds no credentials, and
        ``KafkaConnectionError`` if it had found some before: it says the same of a metadata service that is slow for a moment.
        So it does, with AWS's reason, for all else that the signer raises, such as a role that cannot be assumed now.
        """
        try:
            value, expires_at_ms = await on_thread(self._sign)
        except (AttributeError, ValueError) as error:  # what the signer raises for credentials that are None or empty
            kind = KafkaConnectionError if self._had_credentials else AuthenticationFailedError
            raise kind(f"Amazon MSK in {self._region}: no AWS credentials were found") from error
        except Exception as error:  # botocore's; it is imported by the signer alone
            reason = f"{type(error).__name__}: {shown(said(error))}"
            raise KafkaConnectionError(f"Amazon MSK in {self._region}: {reason}") from error
        self._had_credentials = True
        return Token(value=value, lifetime=expires_at_ms / 1000 - time.time())


def _signer(region: str, profile: str | None, role_arn: str | None, session_name: str) -> Callable[[], Any]:
    try:
        import aws_msk_iam_sasl_signer.MSKAuthTokenProvider as signer  # noqa: N813  # AWS named a module like a class
    except ImportError as missing:
        raise ImportError(
            "tokens for Amazon MSK need aws-msk-iam-sasl-signer-python, which the extra 'msk-iam' brings: "
            "pip install '/path/to/clone[msk-iam]'"
        ) from missing
    if profile is not None:
        return lambda: signer.generate_auth_token_from_profile(region, profile)
    if role_arn is not None:
        return lambda: signer.generate_auth_token_from_role_arn(region, role_arn, session_name)
    return lambda: signer.generate_auth_token(region)
