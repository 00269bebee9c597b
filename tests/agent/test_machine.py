"""Which system and what kind of machine it is."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.agent.discovery import machine
from llmgw.agent.discovery.root import Root
from llmgw.agent.discovery.virtualization import virtualization
from tests.agent.test_cpu import tree

BARE, VM = "flags\t: fpu sse2\n", "flags\t: fpu sse2 hypervisor\n"
DMI = "sys/class/dmi/id"


@pytest.mark.parametrize(
    ("files", "cpuinfo", "said"),
    [
        ({}, BARE, "none"),
        ({}, VM, "vm"),
        ({}, "", ""),
        ({}, "Features\t: fp asimd\n", ""),
        ({f"{DMI}/sys_vendor": "Ampere(R)"}, "Features\t: fp asimd\n", "none"),
        ({f"{DMI}/sys_vendor": "QEMU"}, "Features\t: fp asimd\n", "kvm"),
        ({f"{DMI}/sys_vendor": "VMware, Inc.", f"{DMI}/product_name": "VMware7,1"}, VM, "vmware"),
        ({f"{DMI}/sys_vendor": "innotek GmbH", f"{DMI}/product_name": "VirtualBox"}, VM, "virtualbox"),
        ({f"{DMI}/sys_vendor": "Microsoft Corporation", f"{DMI}/product_name": "Virtual Machine"}, VM, "hyperv"),
        ({f"{DMI}/sys_vendor": "Microsoft Corporation", f"{DMI}/product_name": "Surface Pro"}, BARE, "none"),
        ({f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "m7i.xlarge"}, VM, "amazon"),
        ({f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "m7g.metal"}, "Features\t: asimd\n", "none"),
        ({f"{DMI}/product_name": "Google Compute Engine"}, VM, "google"),
        ({f"{DMI}/product_name": "Google Compute Engine"}, BARE, "none"),
        ({"sys/hypervisor/type": "xen"}, VM, "xen"),
        ({"sys/hypervisor/type": "xen", "proc/xen/capabilities": "control_d\n"}, VM, "none"),
        ({"proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "Features\t: asimd\n", "kvm"),
        ({"sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc kvm-clock"}, VM, "kvm"),
        ({"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2"}, VM, "wsl"),
        ({".dockerenv": ""}, BARE, "container:docker"),
        ({".dockerenv": "", f"{DMI}/sys_vendor": "QEMU"}, VM, "container:docker on kvm"),
        ({"run/systemd/container": "lxc\n"}, BARE, "container:lxc"),
        ({"proc/1/environ": "a=b\0container=systemd-nspawn\0"}, BARE, "container:systemd-nspawn"),
        ({"proc/self/cgroup": "0::/kubepods.slice/kubepods-pod1.slice/cri-1"}, VM, "container:kubernetes on vm"),
        ({"proc/self/cgroup": "4:memory:/docker/0a1b"}, BARE, "container:docker"),
        ({"proc/self/cgroup": "0::/system.slice/llmgw-docker-helper.service"}, BARE, "none"),
    ],
)
def test_what_kind_of_machine_it_is(files: dict[str, str], cpuinfo: str, said: str, tmp_path: Path):
    assert virtualization(tree(tmp_path, files), cpuinfo) == said


def test_the_names_of_a_distribution():
    text = '# comment\nNAME=\'A "B"\'\nPRETTY_NAME="C \\$ D"\nID=e\nbad name=1\n=\nVERSION_ID=\n'
    assert machine.os_release(text) == {"NAME": 'A "B"', "PRETTY_NAME": "C $ D", "ID": "e", "VERSION_ID": ""}


def test_a_distribution_that_keeps_its_names_in_usr(tmp_path: Path):
    root = tree(tmp_path, {"usr/lib/os-release": "ID=x\nNAME=X\n"})
    assert machine.system(root) == machine.System(name="X", id="x", version="")


def test_the_architecture_of_a_machine_that_does_not_say(tmp_path: Path):
    root = Root.recorded(tmp_path)
    assert machine.architecture(root, BARE) == "x86_64"
    assert machine.architecture(root, "Features : asimd\n") == "aarch64"
    assert machine.architecture(root, "") == ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.text(), st.text(), st.text())
def test_no_text_breaks_the_description(tmp_path: Path, release: str, group: str, vendor: str):
    for name, value in machine.os_release(release).items():
        assert re.fullmatch(r"[A-Z0-9_]+", name) and len(value) <= 200
    files = {
        "proc/self/cgroup": group,
        f"{DMI}/sys_vendor": vendor,
        "run/systemd/container": vendor,
        "proc/1/environ": group,
    }
    root = tree(tmp_path, {name: text.encode("utf-8", "replace").decode() for name, text in files.items()})
    assert re.fullmatch(r"[a-z0-9:._ -]*", virtualization(root, group))
