"""Versions of the server and the packages, and the machine."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import redis

_PACKAGES: Final = ("bloomredis", "redis", "hiredis", "mmh3", "numpy", "pottery", "valbloom")


def machine() -> dict[str, Any]:
    """Return the date, the machine and the versions of all packages compared."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "system": platform.system(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def server(client: redis.Redis) -> dict[str, str]:
    """Return the versions of the server and of its RedisBloom module."""
    info = client.info("server")
    name = "Valkey" if "valkey_version" in info else "Redis"
    found = {"server": f"{name} {info[f'{name.lower()}_version']}"}
    for module in client.module_list():
        fields = {_text(key): _text(value) for key, value in dict(module).items()}
        if fields["name"] == "bf":
            number = int(fields["ver"])
            found["redisbloom"] = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return found


def line(about: dict[str, Any], of_server: dict[str, str]) -> str:
    """Return both in one line."""
    packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items() if number)
    module = f" with RedisBloom {of_server['redisbloom']}" if "redisbloom" in of_server else ""
    return (
        f"{of_server['server']}{module}, Python {about['python']}, {packages}; "
        f"{about['cores']} cores of {about['cpu']}, {about['system']}, {about['date']}"
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (FileNotFoundError, StopIteration):
        return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
