"""Sigstore bundles of receipts: an identity vouches for the bytes of a receipt, without a key to keep.

https://docs.sigstore.dev: an authority certifies a key for ten minutes in the name of who owns a token, and a
transparency log records the signature. A bundle lies beside its receipt. It is about that file's bytes, so every
Sigstore client can verify it, and the receipt stays as it is.
"""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sandbox.errors import ErrorCode, SandboxError
from sandbox.lazy_module import LazyModule
from sandbox.models.receipts import BundleSigner, ReceiptRefusal, SignedBundle
from sandbox.receipts.dsse_envelope import MOST_BYTES, digest_of, parse_strict_json
from sandbox.receipts.receipt_refusals import refusal_error

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from sigstore import errors as library_errors
    from sigstore import models as sigstore_models
    from sigstore import oidc, sign
    from sigstore import verify as sigstore_verify
    from sigstore.models import Bundle, ClientTrustConfig, TrustedRoot
    from sigstore.oidc import IdentityToken
    from sigstore.verify import policy
else:  # loaded when a bundle is made or verified (docs/adr/0080)
    library_errors = LazyModule("sigstore.errors")
    sigstore_models = LazyModule("sigstore.models")
    oidc = LazyModule("sigstore.oidc")
    sign = LazyModule("sigstore.sign")
    sigstore_verify = LazyModule("sigstore.verify")
    policy = LazyModule("sigstore.verify.policy")

_Found = TypeVar("_Found")

DEADLINE_S = 60.0
"""For all that the servers of an instance are asked at once; the library itself waits for ever."""


def sign_bundle(content: bytes, token_file: Path | None, trust_file: Path | None) -> SignedBundle:
    """The bundle of a receipt, in the name of this job's identity.

    The token is in `token_file`; None: the CI's own, where it gives one. `trust_file`: what to know of a private
    instance; None: the public one. Raises: `invalid_input` for a file that cannot be used or if the extra is missing;
    `auth_failed` without a token that the instance takes; `network_error`, `timeout`.
    """
    _require_library()
    token = _find_token(token_file)
    trust = _load_trust_config(trust_file)
    bundle = _ask_servers(lambda: _sign(content, token, trust))
    signer = BundleSigner(identity=token.identity, issuer=token.federated_issuer)
    return SignedBundle(bundle=bundle, signer=signer, digest=digest_of(content))


def verify_bundle(content: bytes, bundle: bytes, signer: BundleSigner, trust_file: Path | None) -> None:
    """Verify that `signer` vouches for exactly these bytes, and that a transparency log has it.

    Needs a network only for the public instance's root keys. Raises: `receipt_refused`; `invalid_input`,
    `network_error` and `timeout` as `sign_bundle`.
    """
    _require_library()
    root = _load_trusted_root(trust_file)
    parsed = _parse_bundle(bundle)
    try:
        verifier = sigstore_verify.Verifier(trusted_root=root)
        verifier.verify_artifact(content, parsed, _NamedSigner(signer))
    except SandboxError:
        raise
    except Exception as error:  # the bundle is anybody's, and the library names not all that can be wrong with it
        why = str(error) or type(error).__name__
        raise refusal_error(ReceiptRefusal.WRONG_BUNDLE, why) from error


class _NamedSigner:
    """The policy of who may have signed; None: anybody."""

    def __init__(self, signer: BundleSigner | None) -> None:
        self._signer = signer

    def verify(self, cert: Certificate) -> None:
        if self._signer is None:
            return
        wanted = policy.Identity(identity=self._signer.identity, issuer=self._signer.issuer)
        try:
            wanted.verify(cert)
        except library_errors.VerificationError as error:
            raise refusal_error(ReceiptRefusal.WRONG_IDENTITY, str(error)) from error


def _parse_bundle(content: bytes) -> Bundle:
    if len(content) > MOST_BYTES:
        raise refusal_error(ReceiptRefusal.MALFORMED, f"the bundle has more than {MOST_BYTES} bytes")
    parse_strict_json(content)
    try:
        return sigstore_models.Bundle.from_json(content)
    except Exception as error:  # as in `verify_bundle`
        raise refusal_error(ReceiptRefusal.MALFORMED, f"not a Sigstore bundle: {error}") from error


def _sign(content: bytes, token: IdentityToken, trust: ClientTrustConfig) -> str:
    """A bundle that holds. The library verifies the certificate when it signs, but not what the log answers."""
    with sign.SigningContext.from_trust_config(trust).signer(token) as signer:
        bundle = signer.sign_artifact(content)
    verifier = sigstore_verify.Verifier(trusted_root=trust.trusted_root)
    verifier.verify_artifact(content, bundle, _NamedSigner(None))  # the token says who
    return bundle.to_json()


def _find_token(path: Path | None) -> IdentityToken:
    try:
        text = oidc.detect_credential() if path is None else read_file(path).decode("ascii").strip()
    except (oidc.IdentityError, UnicodeDecodeError) as error:
        raise SandboxError(
            ErrorCode.AUTH_FAILED, "No identity token can be used", details=str(error), hint=_WHERE_TOKENS_ARE
        ) from error
    if not text:
        raise SandboxError(ErrorCode.AUTH_FAILED, "There is no identity token here", hint=_WHERE_TOKENS_ARE)
    try:
        return oidc.IdentityToken(text)
    except oidc.IdentityError as error:
        brief = "The identity token cannot be used"
        raise SandboxError(ErrorCode.AUTH_FAILED, brief, details=str(error), hint=_WHERE_TOKENS_ARE) from error


_WHERE_TOKENS_ARE = (
    "GitHub Actions: `permissions: id-token: write`. GitLab CI: `id_tokens: SIGSTORE_ID_TOKEN: aud: sigstore`. "
    "Elsewhere: --identity-token FILE, a token of OpenID Connect for the audience `sigstore` that has not expired."
)


def _load_trust_config(path: Path | None) -> ClientTrustConfig:
    if path is None:
        return _ask_servers(sigstore_models.ClientTrustConfig.production)
    return _parse_trust(path, sigstore_models.ClientTrustConfig.from_json)


def _load_trusted_root(path: Path | None) -> TrustedRoot:
    """Of a client's configuration, or of a file with only the root, as other verifiers take it."""
    if path is not None and _find_media_type(read_file(path)).startswith(_ROOT_TYPE):
        return _parse_trust(path, lambda _: sigstore_models.TrustedRoot.from_file(str(path)))
    return _load_trust_config(path).trusted_root


_ROOT_TYPE = "application/vnd.dev.sigstore.trustedroot"


def _find_media_type(content: bytes) -> str:
    """Empty for what is no JSON object: `_parse_trust` says what is wrong with it."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    return str(document.get("mediaType", "")) if isinstance(document, dict) else ""


def _parse_trust(path: Path, parse: Callable[[str], _Found]) -> _Found:
    content = read_file(path)
    try:
        return parse(content.decode("utf-8"))
    except Exception as error:  # of the library, which names not all that can be wrong with a file
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            f"The trust configuration {path} cannot be used",
            details=str(error)[:500],
            hint="It is JSON that a Sigstore instance publishes: a ClientTrustConfig; to verify, also a TrustedRoot.",
        ) from error


def read_file(path: Path) -> bytes:
    """A file of Sigstore's that the caller names. Raises: `invalid_input`."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"The file {path} cannot be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise SandboxError(ErrorCode.INVALID_INPUT, f"The file {path} has more than {MOST_BYTES} bytes")
    return content


def _ask_servers(ask: Callable[[], _Found]) -> _Found:
    """The answer of a thread, which is left alone after the deadline. Raises: `timeout`, `auth_failed`,
    `network_error`.
    """
    answer: concurrent.futures.Future[_Found] = concurrent.futures.Future()

    def work() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return answer.result(DEADLINE_S)
    except TimeoutError as error:
        raise SandboxError(
            ErrorCode.TIMEOUT,
            f"The Sigstore servers did not answer in {DEADLINE_S:.0f} s",
            hint="Try again; without them, `sandbox receipt export` signs with a key.",
        ) from error
    except SandboxError:
        raise
    except Exception as error:  # requests, TUF and the library's own, of servers that are not ours
        raise _servers_error(error) from error


_REFUSED = (400, 401, 403)  # HTTP


def _servers_error(error: Exception) -> SandboxError:
    """The library's own errors are often empty: what is behind them is in the details, too."""
    behind = error.__cause__ or error.__context__
    said = [f"{type(each).__name__}: {each}".rstrip(": ") for each in (error, behind) if each is not None]
    status = getattr(getattr(behind, "response", None), "status_code", None)
    if status in _REFUSED:
        brief, hint = "The Sigstore servers did not take the identity token", _WHERE_TOKENS_ARE
        return SandboxError(ErrorCode.AUTH_FAILED, brief, details="; ".join(said)[:500], hint=hint)
    return SandboxError(
        ErrorCode.NETWORK_ERROR,
        "The Sigstore servers gave no signature, or no keys to verify one",
        details="; ".join(said)[:500],
        hint="docs/receipts.md, 'With an identity instead of a key', says which servers are asked.",
    )


def _require_library() -> None:
    if importlib.util.find_spec("sigstore") is None:
        raise SandboxError(
            ErrorCode.INVALID_INPUT,
            "The client of Sigstore is not installed",
            hint="Install the extra: pip install 'space-sandbox[sigstore]'",
        )
