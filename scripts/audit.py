"""`make audit`: the packages that a user of Sparrow installs, by the lock file: advisories,
licences, and a bill of materials.

Advisories are those that PyPI has for the locked version (its JSON API, the source of pip-audit as
well); withdrawn ones do not count. PyPI that cannot be reached is a failure, never a pass. The
licence is the one that the package states: as an SPDX expression, else in its classifiers, else in
words. The bill of materials (CycloneDX 1.5) is written by uv from the same lock file.

Exit codes: 0 nothing found, 1 something found, 69 PyPI cannot be reached.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = "sparrow-broker"
INDEX = "https://pypi.org"
FOUND, UNREACHABLE = 1, 69
ALLOWED = (
    r"(?:\(?(?:MIT|MIT-0|MIT-CMU|HPND|ISC|0BSD|BSD(?:-\d-Clause)?|Apache-2\.0|PSF-2\.0|Python-2\.0|Unlicense|CC0-1\.0|Zlib|BSL-1\.0|MPL-2\.0"
    r"|Apache-2\.0 WITH LLVM-exception)\)?)"
)
"""SPDX ids that a dependency may be under; in an expression every part has to be one, joined by AND
or OR.
"""
SPOKEN = re.compile(
    r"\b(MIT|BSD|Apache|PSF|Python Software Foundation|ISC|Mozilla|Public Domain|Unlicense|zlib|HPND)\b",
    re.IGNORECASE,
)
"""In classifiers and free words."""
FORBIDDEN = re.compile(r"\bA?L?GPL|GNU|SSPL|Commons Clause|Proprietary\b", re.IGNORECASE)
EXCEPTIONS: Mapping[str, str] = {
    # kio needs it. A library of its own that everybody can replace, as the LGPL asks.
    "crc32c": "LGPL-2.1-or-later",
}
"""Packages whose licence was read by a person: name → licence."""


class Package(NamedTuple):
    """A locked one."""

    name: str
    version: str


def shipped(lock: Mapping[str, Any], project: str = PROJECT) -> list[Package]:
    """Packages that the project and its extras need, without those of development."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for each in lock["package"]:
        by_name.setdefault(each["name"], []).append(each)
    found: dict[Package, None] = {}
    root = by_name[project][0]
    waiting = [*_needs(root), *(n for many in root.get("optional-dependencies", {}).values() for n in many)]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        need = waiting.pop()
        key = (need["name"], tuple(need.get("extra", ())))
        if key in seen or need["name"] == project:
            continue
        seen.add(key)
        for each in by_name[need["name"]]:
            if need.get("version", each["version"]) != each["version"]:
                continue
            found[Package(each["name"], each["version"])] = None
            waiting += _needs(each)
            for extra in need.get("extra", ()):
                waiting += each.get("optional-dependencies", {}).get(extra, [])
    return sorted(found)


def _needs(package: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(package.get("dependencies", []))


def advisories(answer: Mapping[str, Any]) -> list[str]:
    """What PyPI knows against a version, one sentence each."""
    return [
        f"{', '.join([each['id'], *each.get('aliases', [])])}"
        f" (mended in {', '.join(each.get('fixed_in') or ['no version'])}): "
        f"{each.get('summary') or 'no summary'}"
        for each in answer.get("vulnerabilities") or []
        if not each.get("withdrawn")
    ]


def licence_fault(package: Package, info: Mapping[str, Any]) -> str:
    """Why the stated licence is none of the allowed ones; "" if it is one."""
    if package.name in EXCEPTIONS:
        return ""
    expression = (info.get("license_expression") or "").strip()
    if expression:
        is_good = re.fullmatch(rf"\(?{ALLOWED}(?:\)? (?:AND|OR) \(?{ALLOWED})*\)?", expression)
        return "" if is_good else f"the licence {expression!r} is not on the list"
    classifiers = [each for each in info.get("classifiers") or [] if each.startswith("License ::")]
    said = " / ".join(classifiers) or (info.get("license") or "").strip()[:200]
    if not said:
        return "no licence is stated"
    if FORBIDDEN.search(said) or not SPOKEN.search(said):
        return f"the licence {said!r} is not on the list"
    return ""


def ask(index: str, package: Package) -> Mapping[str, Any]:
    """What PyPI says of a version. Raises OSError."""
    url = f"{index}/pypi/{package.name}/{package.version}/json"
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - the index is given by whoever runs this
        found: Mapping[str, Any] = json.load(answer)
    return found


def faults(package: Package, answer: Mapping[str, Any]) -> Iterator[str]:
    """All that is wrong with a package."""
    yield from advisories(answer)
    fault = licence_fault(package, answer.get("info") or {})
    if fault:
        yield fault


def write_bill(path: Path) -> None:
    """The bill of materials, by uv. Raises CalledProcessError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "export", "--quiet", "--frozen", "--all-extras", "--no-dev", "--format", "cyclonedx1.5"]
    subprocess.run([*command, "--output-file", str(path)], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own


def audit(packages: Iterable[Package], index: str) -> int:
    """Ask for all; prints what is found. Returns the exit code."""
    packages = list(packages)
    found = 0
    with ThreadPoolExecutor(4) as pool:
        try:
            for package, answer in zip(
                packages, pool.map(lambda each: ask(index, each), packages), strict=True
            ):
                for fault in faults(package, answer):
                    found += 1
                    print(f"{package.name} {package.version}: {fault}")
        except (OSError, ValueError) as error:
            print(
                f"audit: {index} cannot be asked ({error}); nothing is known of the packages", file=sys.stderr
            )
            return UNREACHABLE
    print(f"audit: {len(packages)} packages, {found} findings")
    return FOUND if found else 0


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lock", type=Path, default=Path("uv.lock"))
    parser.add_argument("--bill", type=Path, default=Path("build/sbom.cdx.json"))
    parser.add_argument("--index", default=INDEX)
    parser.add_argument("--only", action="append", help="Only this package; may repeat.")
    given = parser.parse_args(arguments)
    packages = shipped(tomllib.loads(given.lock.read_text(encoding="utf-8")))
    if given.only:
        packages = [each for each in packages if each.name in given.only]
    write_bill(given.bill)
    print(f"audit: bill of materials in {given.bill}")
    return audit(packages, given.index)


if __name__ == "__main__":
    sys.exit(main())
