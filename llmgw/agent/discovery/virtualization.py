"""Is this a machine, a virtual one, or a container? By files alone, as far as they tell."""

import re

from llmgw.agent.discovery.cpu import flags
from llmgw.agent.discovery.root import Root

_DMI = ("product_name", "sys_vendor", "board_vendor", "bios_vendor")

_HYPERVISORS = (
    ("KVM", "kvm"),
    ("QEMU", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "hyperv"),
    ("Apple Virtualization", "apple"),
    ("Amazon EC2", "amazon"),
    ("Google", "google"),
    ("Alibaba Cloud", "alibaba"),
    ("DigitalOcean", "kvm"),
    ("Nutanix", "kvm"),
)
"""What a virtual machine's firmware begins with, and whose it is."""

_CLOCKS = (("kvm-clock", "kvm"), ("hyperv_clocksource", "hyperv"), ("xen", "xen"))
_GROUPS = (("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman"), ("lxc", "lxc"))


def virtualization(root: Root, cpuinfo: str) -> str:
    """`none`, `kvm`, `vmware`, `vm` (which one cannot be told), …; in a container `container:docker`, with ` on kvm`
    when the machine below it is seen to be virtual. Empty when it cannot be told."""
    machine = _machine(root, cpuinfo)
    inside = _container(root)
    if not inside:
        return machine
    return f"container:{inside}" if machine in ("", "none") else f"container:{inside} on {machine}"


def contained(root: Root) -> bool:
    """Whether we are in a container: it sees the whole PCI bus, and may use only the devices that it was given.

    Not each kind leaves a mark. The root file system of one is an overlay, which on a machine is rare.
    """
    mounts = root.text("proc/self/mountinfo").splitlines()
    overlaid = any(line.split()[4:5] == ["/"] and " - overlay " in line for line in mounts)
    return overlaid or bool(_container(root))


def _container(root: Root) -> str:
    """What runs the container that we are in, empty when we are in none that shows."""
    said = root.text("run/systemd/container") or _environment(root)
    if word := re.match(r"[a-z0-9][a-z0-9._-]{0,31}", said):
        return word[0]
    for file, name in (
        ("run/secrets/kubernetes.io", "kubernetes"),
        ("run/.containerenv", "podman"),
        (".dockerenv", "docker"),
    ):
        if root.exists(file):
            return name
    groups = root.text("proc/self/cgroup")
    return next((name for word, name in _GROUPS if re.search(rf"/{word}(?:[/.-]|$)", groups, re.MULTILINE)), "")


def _environment(root: Root) -> str:
    """What the first process was told by who started the container; only root may read it."""
    words = root.text("proc/1/environ").split("\0")
    return next((word.removeprefix("container=") for word in words if word.startswith("container=")), "")


def _machine(root: Root, cpuinfo: str) -> str:
    shown = flags(cpuinfo)
    vm = "hypervisor" in shown
    if "microsoft-standard" in root.text("proc/sys/kernel/osrelease").lower():
        return "wsl"
    if root.text("sys/hypervisor/type") == "xen":
        # Xen's first domain drives the hardware itself.
        return "none" if "control_d" in root.text("proc/xen/capabilities") else "xen"
    named = _by_firmware(root, bare=bool(shown) and not vm) or _by_device_tree(root)
    if named:
        return named
    if vm:
        clocks = root.text("sys/devices/system/clocksource/clocksource0/available_clocksource").split()
        return next((name for clock, name in _CLOCKS if clock in clocks), "vm")
    # x86 shows a hypervisor in its flags; elsewhere firmware that names none is the best sign there is.
    return "none" if shown or root.text("sys/class/dmi/id/sys_vendor") else ""


def _by_firmware(root: Root, *, bare: bool) -> str:
    """`bare`: the processor shows that no hypervisor is below; clouds' own machines bear their names, too."""
    said = {name: root.text(f"sys/class/dmi/id/{name}") for name in _DMI}
    product = said["product_name"]
    if said["sys_vendor"].startswith("Microsoft") and product == "Virtual Machine":
        return "hyperv"
    for text in said.values():
        for begins, name in _HYPERVISORS:
            if text.startswith(begins):
                metal = product.endswith(".metal") or (bare and name in ("amazon", "google", "alibaba"))
                return "none" if metal else name
    return ""


def _by_device_tree(root: Root) -> str:
    compatible = root.text("proc/device-tree/hypervisor/compatible")
    return next(
        (name for word, name in (("kvm", "kvm"), ("xen", "xen"), ("vmware", "vmware")) if word in compatible), ""
    )
