"""Servers of object stores on loopback: moto for S3, an emulator for GCS."""

import contextlib
import logging
import os
import socket
from unittest import mock

import pytest


@contextlib.contextmanager
def s3_server():
    """Run moto's S3 server with a bucket; commands reach it by the environment."""
    pytest.importorskip("s3fs", reason="the extra s3 is not installed")
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        pytest.skip("moto[server] is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    values = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    try:
        with mock.patch.dict(os.environ, values):
            yield _bucket("s3")
    finally:
        server.stop()


@contextlib.contextmanager
def gcs_server():
    """Run an emulator of Google Cloud Storage with a bucket, as `s3_server` does."""
    # gcsfs reads it when it is imported: the emulator has no gRPC.
    with mock.patch.dict(os.environ, {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}):
        pytest.importorskip("gcsfs", reason="the extra gcs is not installed")
        try:
            from gcp_storage_emulator.server import create_server
        except ImportError:
            pytest.skip("gcp-storage-emulator is not installed")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = create_server("127.0.0.1", port, in_memory=True)
        server.start()
        values = {
            "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}",
            "FSSPEC_GS_TOKEN": "anon",
        }
        import fsspec.config

        conf = {"gs": {"token": "anon"}}  # as of the variable, which is read on import
        try:
            with (
                mock.patch.dict(os.environ, values),
                mock.patch.dict(fsspec.config.conf, conf),
                # It prints a traceback for each connection that gcsfs closes.
                mock.patch("socketserver.BaseServer.handle_error"),
            ):
                yield _bucket("gs")
        finally:
            server.stop()


def _bucket(protocol):
    """Create a bucket and return its URL."""
    import fsspec

    # Instances of an earlier server are cached with its address.
    fsspec.get_filesystem_class(protocol).clear_instance_cache()
    fsspec.filesystem(protocol).mkdir("bucket")
    return f"{protocol}://bucket"
