"""Tokens for Amazon MSK, signed without a network."""

import base64
import sys
import threading
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from kafka_async.errors import AuthenticationFailedError, KafkaConnectionError
from kafka_async.network.sasl.msk import MskTokenProvider
from kafka_async.network.sasl.oauthbearer import Bearer, first_message
from kafka_async.network.sasl.tokens import CachingTokenProvider, Token

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # AWS's own example


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def signed(token: str) -> tuple[str, dict[str, list[str]]]:
    """Return the address in a token and its query."""
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    return f"{url.scheme}://{url.netloc}{url.path}", parse_qs(url.query)


@pytest.mark.usefixtures("credentials")
async def test_a_token_is_a_signed_address_of_the_region() -> None:
    token = await MskTokenProvider("eu-west-1").fetch()
    address, query = signed(token.value)
    assert address == "https://kafka.eu-west-1.amazonaws.com/"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith(f"{KEY}/")
    assert query["X-Amz-Credential"][0].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert len(query["X-Amz-Signature"][0]) == 64
    assert token.lifetime is not None
    assert 880 < token.lifetime <= 900
    assert first_message(Bearer(token=token.value)).startswith(b"n,,\x01auth=Bearer ")
    assert SECRET not in token.value


@pytest.mark.usefixtures("credentials")
async def test_a_token_is_kept_and_signed_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    generate = MSKAuthTokenProvider.generate_auth_token
    threads: list[threading.Thread] = []

    def seen(region: str) -> Any:
        threads.append(threading.current_thread())
        return generate(region)

    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token", seen)
    provider = MskTokenProvider("eu-west-1")
    assert await provider.token() == await provider.token()
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.usefixtures("credentials")
async def test_a_profile_has_its_own_credentials(tmp_path: Any) -> None:
    (tmp_path / "credentials").write_text("[billing]\naws_access_key_id = BILLING\naws_secret_access_key = x\n")
    _, query = signed((await MskTokenProvider("eu-west-1", profile="billing").fetch()).value)
    assert query["X-Amz-Credential"][0].startswith("BILLING/")


@pytest.mark.usefixtures("credentials")
async def test_credentials_that_were_there_before_may_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = MskTokenProvider("eu-west-1")
    await provider.fetch()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")  # as a metadata service that is slow for a moment
    with pytest.raises(KafkaConnectionError, match="Amazon MSK in eu-west-1: no AWS credentials"):
        await provider.fetch()


@pytest.mark.usefixtures("credentials")
async def test_without_credentials_trying_again_is_useless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AuthenticationFailedError, match="Amazon MSK in eu-west-1: no AWS credentials"):
        await MskTokenProvider("eu-west-1").token()


class Later(CachingTokenProvider):
    """Keeps tokens for Amazon MSK, by a clock that can be moved on."""

    def __init__(self) -> None:
        self.later = 0.0
        super().__init__(clock=lambda: time.time() + self.later)
        self._tokens = MskTokenProvider("eu-west-1", role_arn="arn:aws:iam::123456789012:role/billing")

    async def fetch(self) -> Token:
        return await self._tokens.fetch()


@pytest.fixture
def roles(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What AWS answers to those who want to assume a role; a token if it is empty."""
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    raised: list[Exception] = []

    def generate(region: str, role_arn: str, session_name: str) -> Any:
        if raised:
            raise raised[0]
        return "token", (time.time() + 900) * 1000

    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token_from_role_arn", generate)
    return raised


THROTTLED = ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, "AssumeRole")
UNREACHABLE = EndpointConnectionError(endpoint_url="https://sts.amazonaws.com/")


@pytest.mark.parametrize("error", [THROTTLED, UNREACHABLE])
async def test_while_aws_gives_no_new_token_the_old_one_is_used(roles: list[Exception], error: Exception) -> None:
    provider = Later()
    assert await provider.token() == "token"
    roles.append(error)
    provider.later = 0.85 * 900
    assert await provider.token() == "token"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (THROTTLED, r"ClientError: An error occurred \(Throttling\) when calling the AssumeRole operation: Rate exceeded"),
        (UNREACHABLE, "EndpointConnectionError: Could not connect to the endpoint URL"),
    ],
)
async def test_why_aws_gives_no_token_is_shown(roles: list[Exception], error: Exception, reason: str) -> None:
    roles.append(error)
    with pytest.raises(KafkaConnectionError, match=f"Amazon MSK in eu-west-1: {reason}"):
        await Later().token()


@pytest.mark.parametrize("region", ["", "evil.com/?", "EU WEST"])
def test_a_region_is_a_name(region: str) -> None:
    with pytest.raises(ValueError, match="expected the name of an AWS region"):
        MskTokenProvider(region)


def test_a_profile_or_a_role() -> None:
    with pytest.raises(ValueError, match="expected one of them"):
        MskTokenProvider("eu-west-1", profile="a", role_arn="b")


def test_a_missing_signer_is_named_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ImportError, match=r"aws-msk-iam-sasl-signer-python.* extra 'msk-iam'.* '/path/to/clone\[msk-iam\]'"):
        MskTokenProvider("eu-west-1")


def test_it_shows_no_more_than_the_region() -> None:
    assert repr(MskTokenProvider("eu-west-1")) == "MskTokenProvider('eu-west-1')"
