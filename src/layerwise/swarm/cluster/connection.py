"""Connection to a running Ray cluster, or to one that is started on this machine and ends with this process.

A cluster on this machine has a random token, because Ray listens on every interface and unpickles what it receives.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from layerwise.errors import SwarmError

LOCAL, AUTO = "local", "auto"

AUTHENTICATION, TOKEN = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"

FOLDER = "LAYERWISE_CLUSTER_FOLDER"
"""Environment variable with the directory of a cluster on this machine, which the caller removes."""

NOT_INSTALLED = (
    "--ray requires Ray, which is not installed. Run pip install 'layerwise[ray]', or omit --ray to compute in this "
    "process."
)

STORE_BYTES = 100_000_000
"""Size of the object store of a cluster on this machine (Ray's minimum is 75 MB). Larger objects are stored on disk."""

GCS_SECONDS = 10
"""Seconds after which a cluster on this machine ends if it loses its control store (GCS)."""

_LATE = "timed out during startup"


def import_ray() -> ModuleType:
    """Import Ray. Raises `SwarmError` if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise SwarmError(NOT_INSTALLED) from error
    module: ModuleType = ray
    return module


class Connection:
    """A connection to a cluster. If the connection started the cluster, `close` shuts the cluster down."""

    def __init__(self, address: str, processors: int) -> None:
        """Connect to the cluster at `address` (`HOST:PORT` or `auto`), or start one with `processors` CPUs (`local`).

        Raises:
            SwarmError: If the cluster does not answer, or is on another machine and has no authentication.
        """
        self._folder: Path | None = None
        self._restore: list[Callable[[], None]] = []
        self._is_owner = not is_connected()
        if self._is_owner:
            check_address(address)
            self._set("RAY_USAGE_STATS_ENABLED", "0")
            if address == LOCAL:
                self._require_token()
                self._set("RAY_gcs_rpc_server_reconnect_timeout_s", str(GCS_SECONDS))
                self._set("RAY_worker_niceness", "0")  # Ray's default of 15 yields to every other process
        self.ray = import_ray()
        if not self._is_owner:
            return
        self._silence_output()
        if address == LOCAL:
            self._disable_monitors()
        options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
        if address == LOCAL:
            # Ray's default directory is readable by every user.
            self._folder = Path(os.environ.get(FOLDER) or tempfile.mkdtemp(prefix="layerwise-"))
            options |= {
                "num_cpus": processors,
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
                "_temp_dir": str(self._folder / "ray"),
                "_node_ip_address": "127.0.0.1",
            }
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._start(options)
        except BaseException as error:
            self.close()
            if isinstance(error, Exception):
                raise SwarmError(_unreachable(address, error)) from error
            raise

    def close(self) -> None:
        if self._is_owner:
            self._is_owner = False
            self.ray.shutdown()
        for undo in reversed(self._restore):
            undo()
        self._restore.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _require_token(self) -> None:
        if AUTHENTICATION in os.environ:
            return
        self._set(AUTHENTICATION, "token")
        self._set(TOKEN, _new_token())
        if "ray" in sys.modules:
            with suppress(ImportError, AttributeError):
                raylet: Any = import_module("ray._raylet")

                raylet.Config.initialize("")
                raylet.AuthenticationTokenLoader.instance().reset_cache()

    def _set(self, name: str, value: str) -> None:
        if name not in os.environ:
            os.environ[name] = value
            self._restore.append(lambda: _unset(name))

    def _silence_output(self) -> None:
        self._replace("worker", "print_to_stdstream", lambda usual: _print_nothing)

    def _start(self, options: dict[str, Any]) -> None:
        """Start Ray or connect to it, retrying once if startup timed out: the second start is faster."""
        try:
            self.ray.init(**options)
        except Exception as error:
            if _LATE not in str(error):
                raise
            self.ray.init(**options)

    def _disable_monitors(self) -> None:
        less = {"no_monitor": True, "include_log_monitor": False}
        self._replace("parameter", "RayParams", lambda usual: partial(usual, **less))
        self._replace("utils", "get_dashboard_dependency_error", lambda usual: lambda: ImportError("no dashboard"))

    def _replace(self, module: str, name: str, change: Callable[[Any], Any]) -> None:
        inner = import_module(f"ray._private.{module}")
        usual = getattr(inner, name, None)
        if usual is not None:
            setattr(inner, name, change(usual))
            self._restore.append(lambda: setattr(inner, name, usual))


def use_environment(folder: str, paths: Sequence[str]) -> None:
    if Path(folder).is_dir():
        os.chdir(folder)
    sys.path += [path for path in paths if path not in sys.path]


def format_cause(error: Exception) -> str:
    r"""Format the cause that Ray reports for a failed call or actor, in one line.

    >>> format_cause(RuntimeError("The actor died.\nWorker exit type: SYSTEM_ERROR Worker exit detail: End of file."))
    'RuntimeError: End of file.'
    """
    _, _, detail = str(error).partition("exit detail: ")
    words = (detail or str(error)).strip().partition("\n")[0]
    return f"{type(error).__name__}: {words[:200]}"


def is_connected() -> bool:
    """Return True if this process is connected to a cluster, without importing Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def require_ray() -> None:
    if sys.modules.get("ray", ...) is None or ("ray" not in sys.modules and find_spec("ray") is None):
        raise SwarmError(NOT_INSTALLED)


@cache
def _new_token() -> str:
    return secrets.token_hex(32)


def check_address(address: str) -> None:
    """Raise `SwarmError` for a malformed address, or for a remote cluster without authentication.

    >>> check_address("local")
    """
    if address in (LOCAL, AUTO):
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not host or not (port.isascii() and port.isdecimal()):
        raise SwarmError(
            f"--ray must be local, auto or the HOST:PORT of a cluster's head node, got {address[:60]!r}. Run the "
            "command on a machine of the cluster with --ray auto, or pass an address such as 10.0.0.1:6379."
        )
    if not is_loopback(host) and AUTHENTICATION not in os.environ:
        raise SwarmError(
            f"--ray {address} is on another machine, and a Ray cluster runs any code it is sent, so authentication "
            f"must be configured. Set {AUTHENTICATION}=token (with {TOKEN}) on all machines, or "
            f"{AUTHENTICATION}=disabled on a private network."
        )


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the host.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", "example.org")]
    [True, True, True, False, False, False]
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _unreachable(address: str, error: Exception) -> str:
    words = str(error).strip().partition("\n")[0][:200] or type(error).__name__
    if address == LOCAL:
        return f"Ray could not be started on this machine ({words}). Omit --ray to compute in one process."
    return (
        f"No Ray cluster answers at {address} ({words}). Start one with `ray start --head`, or pass --ray local to "
        "start one on this machine."
    )


def _unset(name: str) -> None:
    os.environ.pop(name, None)


def _print_nothing(*arguments: object, **options: object) -> None: ...
