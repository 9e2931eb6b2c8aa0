#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes which packages of Debian are in a static executable, as SPDX 2.3 JSON.

usage: sbom.py VERSION EXECUTABLE MAP    MAP: what the linker wrote of it (-Map)

An archive is in it if the linker took a member of it; the package that it came from, and
its version, are asked of dpkg.
"""
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys


def taken(map_file):
    """The archives and start files outside of the build folder that the linker took."""
    text = open(map_file, errors="replace").read()
    names = re.findall(r"^(/\S+\.a)\(\S+\)$", text, re.M)  # "Archive member included"
    names += re.findall(r"^LOAD (/\S+\.o)$", text, re.M)
    return sorted({os.path.realpath(n) for n in names})


def package_of(path):
    for name in (path, path.removeprefix("/usr")):
        found = subprocess.run(["dpkg", "-S", name], text=True, capture_output=True)
        if not found.returncode:
            return found.stdout.split(": ")[0]
    sys.exit(f"sbom.py: {path}: of no package")


def described(package):
    form = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}"
    return subprocess.run(["dpkg-query", "-W", "-f", form, package], check=True, text=True,
                          capture_output=True).stdout.split("\t")


def entry(package):
    name, version, arch, source, source_version = described(package)
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "name": name,
        "versionInfo": version,
        "supplier": "Organization: Debian",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "sourceInfo": f"source package {source} {source_version}",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:deb/debian/{name}@{version}?arch={arch}",
        }],
    }


def main():
    version, executable, map_file = sys.argv[1:]
    data = open(executable, "rb").read()
    digest = hashlib.sha256(data).hexdigest()
    entries = [entry(p) for p in sorted({package_of(a) for a in taken(map_file)})]
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]),
                                           datetime.timezone.utc)
    unshard = {
        "SPDXID": "SPDXRef-unshard",
        "name": "unshard",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "2026 the unshardfs authors",
        "primaryPackagePurpose": "APPLICATION",
    }
    name = os.path.basename(executable)
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-unshard")]
    relations += [(e["SPDXID"], "STATIC_LINK", "SPDXRef-unshard") for e in entries]
    json.dump({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://unshardfs.invalid/spdx/{name}-{digest}",
        "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: packaging/sbom.py"]},
        "packages": [unshard, *entries],
        "relationships": [{"spdxElementId": a, "relationshipType": how, "relatedSpdxElement": b}
                          for a, how, b in relations],
    }, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
