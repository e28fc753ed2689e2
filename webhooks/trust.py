"""Whose certificates are believed when a stranger is called."""

from __future__ import annotations

import ssl
from pathlib import Path


def system_trust() -> ssl.SSLContext:
    """Return a client context that trusts the system's authorities and no environment variable.

    ``ssl.create_default_context`` would follow SSL_CERT_FILE, and write keys to SSLKEYLOGFILE.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()
    cafile, capath = Path(paths.openssl_cafile), Path(paths.openssl_capath)
    context.load_verify_locations(
        cafile=cafile if cafile.is_file() else None,
        capath=capath if capath.is_dir() or not cafile.is_file() else None,
    )
    return context
