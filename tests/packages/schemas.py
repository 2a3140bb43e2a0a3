"""Holds files for other programs to the schemas that these publish.

usage: schemas.py DIST BILL-OF-MATERIALS
"""

import sys
from pathlib import Path

import kubernetes_validate
import yaml
from cloudcoil.models.prometheus_operator import v1 as monitoring
from compose_spec import PyCompose
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

# The oldest and the newest release of Kubernetes that manifests are for.
RELEASES = ["1.29", "1.37"]


def check_kubernetes(folder: Path) -> int:
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    found = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert found == set(listed), f"kustomization.yaml lists {listed}, and there are {found}"
    count = 0
    for name in listed:
        for document in yaml.safe_load_all((folder / name).read_text()):
            if document["apiVersion"] == "monitoring.coreos.com/v1":
                check_monitor(document)
            else:
                for release in RELEASES:
                    kubernetes_validate.validate(document, release, strict=True)
            count += 1
    return count


def check_monitor(document: dict) -> None:
    """The model ignores keys that it does not know; comparing shows them."""
    model = monitoring.ServiceMonitor.model_validate(document)
    known = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert known == document, f"keys are unknown: {document} became {known}"


def check_compose(path: Path) -> int:
    """Unknown keys are errors."""
    compose = PyCompose.from_yaml(path.read_text())
    return len(compose.service_names())


def check_bill(path: Path) -> int:
    text = path.read_text()
    error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
    assert error is None, error
    return len(yaml.safe_load(text)["components"])


def main() -> None:
    dist, bill = map(Path, sys.argv[1:])
    manifests = check_kubernetes(dist / "kubernetes")
    services = check_compose(dist / "compose.yaml")
    components = check_bill(bill)
    print(f"{manifests} manifests, {services} service of Compose, {components} components of the program")


main()
