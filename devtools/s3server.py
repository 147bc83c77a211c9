"""A server that speaks S3, for tests: moto's. Its clients find it by the documented variables of AWS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import fsspec
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "verdicts"


@contextmanager
def serve_s3() -> Iterator[str]:
    """Serve a bucket; its name. Variables of this process name the server meanwhile. Servers of a process share what
    they hold.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
            patched.setenv("AWS_DEFAULT_REGION", "us-east-1")
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                patched.setenv(name, "test")
            fsspec.filesystem("s3", skip_instance_cache=True).makedirs(BUCKET, exist_ok=True)
            yield BUCKET
    finally:
        server.stop()
        fsspec.get_filesystem_class("s3").clear_instance_cache()
