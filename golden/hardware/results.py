"""What was found on hardware: read from result files, checked, and kept."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import capture

MEMBERS = ("provenance.json", "outputs.safetensors")


class Refused(Exception):
    """A result file that says nothing of this checkout; one line."""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass
class Results:
    """Of the checkout ``root``. ``goldens``: the provenance of each app's; ``verified``: what
    `tpu-migrate verify` found on a TPU, by app and target; ``on_gpu``: what `portable` found of the
    migrated apps on a GPU, likewise."""

    KEPT: ClassVar = (
        "app", "target", "device", "versions", "notes", "outputs", "problems", "times", "seconds",
        "passed", "error", "on_gpu",
    )  # fmt: skip

    root: Path
    goldens: dict[str, dict[str, Any]] = field(default_factory=dict)
    verified: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    on_gpu: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    new: dict[str, bytes] = field(default_factory=dict)  # files of golden/ that were added

    @staticmethod
    def of(root: Path) -> Results:
        """What the checkout has."""
        results = Results(root)
        for path in sorted((root / "golden").glob("*/provenance.json")):
            results.goldens[path.parent.name] = json.loads(path.read_text("utf-8"))
        for path in sorted((root / "golden" / "hardware" / "results").glob("*.json")):
            results._sort_in(json.loads(path.read_text("utf-8")))
        return results

    def add(self, file: Path, rehearsal: bool = False) -> None:
        """Take a result file in. Raises Refused where it is not of this checkout."""
        try:
            if zipfile.is_zipfile(file):
                self._add_goldens(file, rehearsal)
            else:
                self._add_verified(file, rehearsal)
        except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise Refused(f"{file} is no result file, or is damaged: {error!r}") from error

    def keep(self) -> None:
        """Write what was added."""
        for name, content in self.new.items():
            path = self.root / "golden" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            capture.replace(path, content)

    def _add_goldens(self, file: Path, rehearsal: bool) -> None:
        with zipfile.ZipFile(file) as archive:
            for name in dict.fromkeys(entry.partition("/")[0] for entry in archive.namelist()):
                content = {member: archive.read(f"{name}/{member}") for member in MEMBERS}
                provenance = json.loads(content["provenance.json"])
                self._check_source(f"{file}: {name}", name, provenance["source_sha256"])
                outputs = hashlib.sha256(content["outputs.safetensors"]).hexdigest()
                if outputs != provenance["outputs_sha256"]:
                    raise Refused(f"{file}: {name}: the outputs are not those of the provenance")
                device = provenance["device"]
                if device["kind"] != "NVIDIA GPU" and not rehearsal:
                    raise Refused(f"{file}: {name} was captured on {device['name']}, not on a GPU")
                if not provenance["versions"].get("torch"):
                    raise Refused(f"{file}: {name}: the version of torch is not known")
                self.goldens[name] = provenance
                self.new |= {f"{name}/{member}": text for member, text in content.items()}

    def _add_verified(self, file: Path, rehearsal: bool) -> None:
        table = json.loads(file.read_text("utf-8"))
        for found in table["results"]:
            name, what = found["app"], f"{file}: {found['app']} on {found['target']}"
            self._check_source(what, name, found["source_sha256"])
            if found["golden_sha256"] != self.goldens[name]["outputs_sha256"]:
                raise Refused(f"{what}: it was compared with another golden")
            on_gpu, device = found.get("on_gpu", False), str(found["device"] or "nothing")
            if not rehearsal and not (device.startswith("NVIDIA ") if on_gpu else device == "TPU"):
                wanted = "GPU" if on_gpu else "TPU"
                raise Refused(f"{what} ran on {device}, not on a {wanted}")
            if not found["versions"].get("torch"):
                raise Refused(f"{what}: the version of torch is not known")
            found["date"], found["tpu_migrate"] = table["date"], table["tpu_migrate"]
            self._sort_in(found)
            text = json.dumps(found, indent=1) + "\n"
            file_name = f"{name}-{found['target']}{'-gpu' if on_gpu else ''}.json"
            self.new[f"hardware/results/{file_name}"] = text.encode()

    def _sort_in(self, found: dict[str, Any]) -> None:
        by_app = self.on_gpu if found.get("on_gpu") else self.verified
        by_app[found["app"], found["target"]] = found

    def _check_source(self, what: str, name: str, source: str) -> None:
        folder = self.root / "reference_apps" / name
        if not (folder / "app.toml").is_file():
            raise Refused(f"{what}: there is no such app here")
        if source != capture.digest(folder):
            raise Refused(f"{what}: the app has changed since")
