"""A private Sigstore for tests: a certificate authority, a transparency log and an identity provider, as servers.

It speaks what the library `sigstore` sends to the public instance: Fulcio's API 2 and Rekor's API 1. Certificates carry
a signed certificate timestamp (RFC 6962), entries an inclusion proof with a signed checkpoint, and so everything that
the library verifies is really there. The log has one entry for each tree: its proofs need no path.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

ISSUER = "https://identities.example"
_ISSUER_OID, _OLD_ISSUER_OID = ObjectIdentifier("1.3.6.1.4.1.57264.1.8"), ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_TIMESTAMPS_OID = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_CERTIFICATE_LIFE = timedelta(minutes=10)


@dataclass
class PrivateSigstore:
    """Keys of one instance. `answers_after_s`: how long its servers take; `clock`: what they take for the present."""

    url: str = ""
    answers_after_s: float = 0.0
    refuses: bool = False
    authority_key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: _new_key())
    certificate_log_key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: _new_key())
    log_key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: _new_key())
    token_key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: _new_key())
    entries: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.authority = self._make_authority()

    def token(self, identity: str, issuer: str = ISSUER, life_s: float = 300.0) -> str:
        """An identity token, as the job of a CI gets one."""
        now = int(time.time())
        claims = {"iss": issuer, "sub": identity, "aud": "sigstore", "iat": now, "exp": int(now + life_s)}
        return jwt.encode(claims, self.token_key, algorithm="ES256")

    @property
    def trust_config(self) -> str:
        """What a client has to know of this instance, as JSON."""
        since = {"start": "2020-01-01T00:00:00Z"}
        services = {"majorApiVersion": 1, "url": self.url, "validFor": since, "operator": "tests"}
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
                "trustedRoot": {
                    "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                    "tlogs": [self._describe_log(self.log_key, since)],
                    "ctlogs": [self._describe_log(self.certificate_log_key, since)],
                    "certificateAuthorities": [
                        {
                            "subject": {"organization": "tests", "commonName": "authority"},
                            "uri": self.url,
                            "certChain": {"certificates": [{"rawBytes": _text(_der(self.authority))}]},
                            "validFor": since,
                        }
                    ],
                },
                "signingConfig": {
                    "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                    "caUrls": [services],
                    "oidcUrls": [],
                    "rekorTlogUrls": [services],
                    "rekorTlogConfig": {"selector": "ANY"},
                    "tsaUrls": [],
                    "tsaConfig": {"selector": "ANY"},
                },
            }
        )

    def certify(self, order: dict[str, str], token: str) -> dict[str, Any]:
        """A certificate of ten minutes for the key of a request, in the name of who owns the token."""
        claims = jwt.decode(token, self.token_key.public_key(), algorithms=["ES256"], audience="sigstore")
        request = x509.load_pem_x509_csr(base64.b64decode(order["certificateSigningRequest"]))
        now = datetime.now(UTC).replace(microsecond=0)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.authority.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(seconds=1))
            .not_valid_after(now + _CERTIFICATE_LIFE)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(request.public_key()), critical=False)
            .add_extension(_key_identifier(self.authority), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(claims["sub"])]), critical=True)
            .add_extension(x509.UnrecognizedExtension(_ISSUER_OID, _utf8_der(claims["iss"])), critical=False)
            .add_extension(x509.UnrecognizedExtension(_OLD_ISSUER_OID, claims["iss"].encode()), critical=False)
        )
        plain = builder.sign(self.authority_key, hashes.SHA256())
        seen = x509.UnrecognizedExtension(_TIMESTAMPS_OID, self._timestamp_list(plain.tbs_certificate_bytes))
        certificate = builder.add_extension(seen, critical=False).sign(self.authority_key, hashes.SHA256())
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": [_pem(certificate), _pem(self.authority)]}}}

    def log(self, proposed: dict[str, Any]) -> dict[str, Any]:
        """The entry of the log for a signature, alone in a tree of its own."""
        spec = proposed["spec"]
        body = rfc8785.dumps({"apiVersion": "0.0.1", "kind": proposed["kind"], "spec": spec})
        root, log_id, seconds = hashlib.sha256(b"\0" + body).digest(), _key_id(self.log_key), int(time.time())
        said: dict[str, str | int] = {
            "body": _text(body),
            "integratedTime": seconds,
            "logID": log_id.hex(),
            "logIndex": 0,
        }
        note = f"tests - 1\n1\n{_text(root)}\n"
        signature = _text(log_id[:4] + _sign(self.log_key, note.encode()))
        proof = {
            "checkpoint": f"{note}\n\u2014 tests {signature}\n",
            "hashes": [],
            "logIndex": 0,
            "rootHash": root.hex(),
            "treeSize": 1,
        }
        promise = _text(_sign(self.log_key, rfc8785.dumps({**said})))
        entry = said | {"verification": {"inclusionProof": proof, "signedEntryTimestamp": promise}}
        self.entries.append(entry)
        return {root.hex(): entry}

    def _make_authority(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.authority_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.authority_key.public_key()), critical=False)
            .sign(self.authority_key, hashes.SHA256())
        )

    def _timestamp_list(self, certificate: bytes) -> bytes:
        """A list of one signed certificate timestamp, as an extension carries it."""
        at = struct.pack("!Q", int(time.time() * 1000))
        issuer = hashlib.sha256(_public_der(self.authority_key)).digest()
        entry = struct.pack("!H", 1) + issuer + len(certificate).to_bytes(3, "big") + certificate + b"\0\0"
        signature = _sign(self.certificate_log_key, b"\0\0" + at + entry)
        algorithm = bytes((4, 3))  # SHA-256 with ECDSA
        timestamp = b"\0" + _key_id(self.certificate_log_key) + at + b"\0\0" + algorithm + _vector(signature)
        return _der_octets(_vector(_vector(timestamp)))

    def _describe_log(self, key: ec.EllipticCurvePrivateKey, since: dict[str, str]) -> dict[str, Any]:
        public = {"rawBytes": _text(_public_der(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": since}
        log_id = {"keyId": _text(_key_id(key))}
        return {"baseUrl": self.url, "hashAlgorithm": "SHA2_256", "publicKey": public, "logId": log_id}


@contextmanager
def serve_sigstore() -> Iterator[PrivateSigstore]:
    """Serve a new instance on the loopback."""
    instance = PrivateSigstore()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(instance.answers_after_s)
            if instance.refuses:
                self.send_error(403)
                return
            if self.path.endswith("/signingCert"):
                answer = instance.certify(content, self.headers["Authorization"].removeprefix("Bearer "))
            else:
                answer = instance.log(content)
            body = json.dumps(answer).encode()
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    instance.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield instance
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    others = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        decipher_only=False,
        **others,
    )


def _key_identifier(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    known = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _sign(key: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    return key.sign(content, ec.ECDSA(hashes.SHA256()))


def _public_der(key: ec.EllipticCurvePrivateKey) -> bytes:
    public = key.public_key()
    return public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_public_der(key)).digest()


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _vector(content: bytes) -> bytes:
    """With its length before it, in two bytes."""
    return struct.pack("!H", len(content)) + content


def _der_octets(content: bytes) -> bytes:
    return b"\x04" + _der_length(len(content)) + content


def _utf8_der(text: str) -> bytes:
    content = text.encode()
    return b"\x0c" + _der_length(len(content)) + content


def _der_length(length: int) -> bytes:
    if length < 128:
        return bytes((length,))
    content = length.to_bytes(2, "big").lstrip(b"\0")
    return bytes((128 + len(content),)) + content
