"""Connections to Ray: a running cluster, or one on this machine that ends with this process.

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
"""Environment variable with the folder of a cluster on this machine; who sets it removes the folder if need be."""

NOT_INSTALLED = (
    "a cluster was asked for, and Ray, which runs it, is not installed; write pip install 'layerwise[ray]', or compute "
    "in this process, without --ray"
)

STORE_BYTES = 100_000_000
"""The object store of a cluster on this machine; what is larger goes to the disk. Ray's least is 75 MB."""

GCS_SECONDS = 10
"""Seconds after which a cluster on this machine ends that has lost its GCS, and can no longer start what ends."""

_LATE = "timed out during startup"


def ray_module() -> ModuleType:
    """Ray itself. Raises `SwarmError` where it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise SwarmError(NOT_INSTALLED) from error
    module: ModuleType = ray
    return module


class Connection:
    """A connection to a cluster; `close` ends it with a cluster started here, but not one that existed before."""

    def __init__(self, address: str, processors: int) -> None:
        """Connect to the cluster at `address` (`HOST:PORT`, `auto`), or start one here (`local`) with `processors`.

        Raises `SwarmError` for a cluster that does not answer or that other machines can use without a token.
        """
        self._folder: Path | None = None
        self._restore: list[Callable[[], None]] = []
        self._own = not is_connected()
        if self._own:
            check_address(address)
            self._set("RAY_USAGE_STATS_ENABLED", "0")
            if address == LOCAL:
                self._close_to_others()
                self._set("RAY_gcs_rpc_server_reconnect_timeout_s", str(GCS_SECONDS))
                self._set("RAY_worker_niceness", "0")  # as this process; Ray's own 15 yields to everything else
        self.ray = ray_module()
        if not self._own:
            return
        self._hush()
        if address == LOCAL:
            self._lighten()
        options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
        if address == LOCAL:
            # Ray opens its own folder to everybody, and this one is open to nobody else.
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
        if self._own:
            self._own = False
            self.ray.shutdown()
        for undo in reversed(self._restore):
            undo()
        self._restore.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _close_to_others(self) -> None:
        if AUTHENTICATION in os.environ:
            return
        self._set(AUTHENTICATION, "token")
        self._set(TOKEN, _token())
        if "ray" in sys.modules:
            with suppress(ImportError, AttributeError):
                raylet: Any = import_module("ray._raylet")

                raylet.Config.initialize("")
                raylet.AuthenticationTokenLoader.instance().reset_cache()

    def _set(self, name: str, value: str) -> None:
        if name not in os.environ:
            os.environ[name] = value
            self._restore.append(lambda: _unset(name))

    def _hush(self) -> None:
        self._replace("worker", "print_to_stdstream", lambda usual: _silent)

    def _start(self, options: dict[str, Any]) -> None:
        """Start Ray or connect to it, twice at most: processes that were not ready in 15 s start faster then."""
        try:
            self.ray.init(**options)
        except Exception as error:
            if _LATE not in str(error):
                raise
            self.ray.init(**options)

    def _lighten(self) -> None:
        less = {"no_monitor": True, "include_log_monitor": False}
        self._replace("parameter", "RayParams", lambda usual: partial(usual, **less))
        self._replace("utils", "get_dashboard_dependency_error", lambda usual: lambda: ImportError("no dashboard"))

    def _replace(self, module: str, name: str, change: Callable[[Any], Any]) -> None:
        inner = import_module(f"ray._private.{module}")
        usual = getattr(inner, name, None)
        if usual is not None:
            setattr(inner, name, change(usual))
            self._restore.append(lambda: setattr(inner, name, usual))


def work_in(folder: str, paths: Sequence[str]) -> None:
    if Path(folder).is_dir():
        os.chdir(folder)
    sys.path += [path for path in paths if path not in sys.path]


def cause_of(error: Exception) -> str:
    """Why a call failed, or an actor died, as far as Ray says it in one line.

    >>> cause_of(RuntimeError("The actor died.\\nWorker exit type: SYSTEM_ERROR Worker exit detail: End of file."))
    'RuntimeError: End of file.'
    """
    _, _, detail = str(error).partition("exit detail: ")
    words = (detail or str(error)).strip().partition("\n")[0]
    return f"{type(error).__name__}: {words[:200]}"


def is_connected() -> bool:
    """Whether this process is connected to a cluster already; Ray is not imported for it."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def require_ray() -> None:
    if sys.modules.get("ray", ...) is None or ("ray" not in sys.modules and find_spec("ray") is None):
        raise SwarmError(NOT_INSTALLED)


@cache
def _token() -> str:
    return secrets.token_hex(32)


def check_address(address: str) -> None:
    """Raise `SwarmError` for an address of another form, and for a cluster of others whose use nobody has settled.

    >>> check_address("local")
    """
    if address in (LOCAL, AUTO):
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not host or not (port.isascii() and port.isdecimal()):
        raise SwarmError(
            f"--ray takes local, auto or the HOST:PORT of a cluster's head; found {address[:60]!r}. Start the command "
            "on a machine of the cluster, with auto or an address such as 10.0.0.1:6379"
        )
    if not is_loopback(host) and AUTHENTICATION not in os.environ:
        raise SwarmError(
            f"{address} is on another machine, and a Ray cluster runs whatever code it is sent: say how it knows its "
            f"users. Set {AUTHENTICATION}=token on all of its machines and here (with {TOKEN}), or "
            f"{AUTHENTICATION}=disabled where nobody else is on the network"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

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
        return f"Ray could not be started on this machine ({words}); leave --ray out to compute in one process"
    return (
        f"no Ray cluster answers at {address} ({words}); start one with `ray start --head`, or write --ray local for "
        "one on this machine"
    )


def _unset(name: str) -> None:
    os.environ.pop(name, None)


def _silent(*arguments: object, **options: object) -> None:
    """Takes what Ray would print."""
