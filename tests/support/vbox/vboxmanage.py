"""A stand-in for ``VBoxManage``: knows the grammar of each subcommand that our scripts use, and what each needs of a machine's state.

Whatever is not known, an option, a state, a file, is an error as VirtualBox's is: a message on standard error and exit code 1 or 2.
Its world is the file ``state`` (marshal) in the folder FAKE_VBOX. ``calls`` there lists every call, its words with tabs between. With
FAKE_VBOX_FAIL it fails on demand: ``N:before`` and ``N:after`` fail call N, without and with its effect (``after`` is what a power cut or
Ctrl-C leaves); ``once:before`` and ``once:after`` fail every command line the first time that it is seen; ``WORD:after`` fails those with that
word in them. It is started thousands of times, so it imports next to nothing.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

HOME = os.environ.get("FAKE_VBOX", ".")
VERSION = "7.0.20r163906"
RUNNING = ("running", "paused")
CLONE_PARTS = ("nics", "memory", "cpus", "controllers")


class Refusal(Exception):
    """What VBoxManage says before it ends; a wrong command line ends with 2."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def refuse(message: str, code: int = 1) -> NoReturn:
    raise Refusal(message, code)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


class Options:
    """Long options with a value (``--name=x`` or ``--name x``), switches, and what stands between them."""

    def __init__(self, words: Sequence[str], valued: Sequence[str] = (), switches: Sequence[str] = ()) -> None:
        self.values: dict[str, str] = {}
        self.words: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if not word.startswith("--"):
                self.words.append(word)
                continue
            name, equals, value = word[2:].partition("=")
            if name in switches and not equals:
                value = "yes"
            elif name not in valued:
                refuse(f"Syntax error: Unknown option: {word}", 2)
            elif not equals:
                if not rest:
                    refuse(f"Syntax error: Missing argument for {word}", 2)
                value = rest.pop(0)
            self.values[name] = value

    def need(self, *names: str) -> None:
        for name in names:
            if not self.values.get(name):
                refuse(f"Syntax error: Required option missing: --{name}", 2)

    def count(self, number: int) -> list[str]:
        if len(self.words) != number:
            refuse(f"Syntax error: Invalid parameters: {self.words}", 2)
        return self.words


class World:
    """Machines, media and networks, as they are after every call so far."""

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        saved = saved or {}
        self.vms: dict[str, dict[str, Any]] = saved.get("vms", {})
        self.media: dict[str, dict[str, Any]] = saved.get("media", {})  # the registry: by location
        self.interfaces: dict[str, str] = saved.get("interfaces", {})
        self.networks: dict[str, dict[str, str]] = saved.get("networks", {})

    def saved(self) -> dict[str, Any]:
        return {"vms": self.vms, "media": self.media, "interfaces": self.interfaces, "networks": self.networks}

    def vm(self, name: str) -> dict[str, Any]:
        if name not in self.vms:
            refuse(f"VBoxManage: error: Could not find a registered machine named '{name}'\nVBOX_E_OBJECT_NOT_FOUND")
        return self.vms[name]

    def vm_at_rest(self, name: str) -> dict[str, Any]:
        vm = self.vm(name)
        if vm["state"] not in ("poweroff", "aborted"):
            refuse(f"VBoxManage: error: The machine '{name}' is already locked for a session: {vm['state']}\nVBOX_E_INVALID_OBJECT_STATE")
        return vm


def version(world: World, words: list[str]) -> str:
    Options(words).count(0)
    return VERSION


def list_(world: World, words: list[str]) -> str:
    [what] = Options(words).count(1)
    if what == "vms":
        return "\n".join(f'"{name}" {{{vm["uuid"]}}}' for name, vm in world.vms.items())
    if what == "hdds":
        return "\n\n".join(f"UUID:           {medium['uuid']}\nLocation:       {location}" for location, medium in world.media.items())
    if what == "hostonlyifs":
        return "\n\n".join(f"Name:            {name}\nIPAddress:       {address}\nVBoxNetworkName: HostInterfaceNetworking-{name}"
                           for name, address in world.interfaces.items())
    if what == "hostonlynets":
        return "\n\n".join(f"Name:            {name}\nLowerIP:         {net['lower-ip']}" for name, net in world.networks.items())
    refuse(f"Syntax error: Invalid parameter '{what}'", 2)


def allowed(address: str) -> None:
    parts = address.split(".")
    if len(parts) != 4 or parts[:2] != ["192", "168"] or not parts[2].isdecimal() or not 56 <= int(parts[2]) <= 63 or not parts[3].isdecimal():
        refuse("VBoxManage: error: Code E_ACCESSDENIED (0x80070005) - Access denied (extended info not available)")


def hostonlyif(world: World, words: list[str]) -> str:
    if words[:1] == ["create"]:
        Options(words[1:]).count(0)
        name = next(f"vboxnet{number}" for number in range(99) if f"vboxnet{number}" not in world.interfaces)
        world.interfaces[name] = ""
        return f"Interface '{name}' was successfully created"
    if words[:1] == ["ipconfig"]:
        options = Options(words[1:], ("ip", "netmask"))
        options.need("ip", "netmask")
        [name] = options.count(1)
        allowed(options.values["ip"])
        if name not in world.interfaces:
            refuse(f"VBoxManage: error: The host network interface named '{name}' could not be found")
        world.interfaces[name] = options.values["ip"]
        return ""
    if words[:1] == ["remove"]:
        [name] = Options(words[1:]).count(1)
        if name not in world.interfaces:
            refuse(f"VBoxManage: error: The host network interface named '{name}' could not be found")
        del world.interfaces[name]
        return ""
    refuse("Syntax error: hostonlyif", 2)


def hostonlynet(world: World, words: list[str]) -> str:
    options = Options(words[1:], ("name", "netmask", "lower-ip", "upper-ip"), ("enable",))
    options.need("name")
    options.count(0)
    name = options.values["name"]
    if words[:1] == ["add"]:
        options.need("netmask", "lower-ip", "upper-ip")
        allowed(options.values["lower-ip"])
        if name in world.networks:
            refuse(f"VBoxManage: error: Host-only network '{name}' already exists")
        world.networks[name] = options.values
    elif words[:1] == ["remove"]:
        if name not in world.networks:
            refuse(f"VBoxManage: error: no host-only network '{name}'")
        del world.networks[name]
    else:
        refuse("Syntax error: hostonlynet", 2)
    return ""


def createvm(world: World, words: list[str]) -> str:
    options = Options(words, ("name", "groups", "ostype", "basefolder"), ("register",))
    options.need("name", "groups", "ostype", "basefolder", "register")
    options.count(0)
    return _register(world, options, {"nics": {}, "memory": 128, "cpus": 1, "controllers": {}, "attached": {}, "forwards": [], "parent": None})


def _register(world: World, options: Options, vm: dict[str, Any]) -> str:
    name = options.values["name"]
    if name in world.vms:
        refuse(f"VBoxManage: error: Machine settings file for '{name}' already exists\nVBOX_E_FILE_ERROR")
    folder = os.path.join(options.values["basefolder"] + options.values["groups"], name)
    if os.path.exists(folder):
        refuse(f"VBoxManage: error: Machine settings file '{folder}/{name}.vbox' already exists\nVBOX_E_FILE_ERROR")
    os.makedirs(folder)
    write(os.path.join(folder, f"{name}.vbox"), "")
    world.vms[name] = {**vm, "uuid": os.urandom(16).hex(), "state": "poweroff", "groups": options.values["groups"], "folder": folder,
                       "snapshots": {}}
    return f"Virtual machine '{name}' is created and registered."


def modifyvm(world: World, words: list[str]) -> str:
    options = Options(words, ("cpus", "memory", "nic1", "nic2", "hostonlyadapter2", "host-only-net2", "macaddress1", "macaddress2", "natpf1"))
    [name] = options.count(1)
    vm = world.vm_at_rest(name)
    for option, value in options.values.items():
        if option in ("cpus", "memory"):
            if not value.isdecimal() or not int(value):
                refuse(f"VBoxManage: error: Invalid --{option} {value}", 2)
            vm[option] = int(value)
        elif option.startswith("macaddress"):
            if len(value) != 12 or not set(value) <= set("0123456789ABCDEF") or int(value[1], 16) % 2:
                refuse(f"VBoxManage: error: Invalid MAC address {value}")
            vm["nics"][option] = value
        elif option == "natpf1":
            _forward(vm, value)
        else:
            known = {"nic1": ("nat",), "nic2": ("hostonly", "hostonlynet"), "hostonlyadapter2": world.interfaces, "host-only-net2": world.networks}
            if value not in known[option]:
                refuse(f"VBoxManage: error: Invalid --{option} {value!r}")
            vm["nics"][option] = value
    return ""


def _forward(vm: dict[str, Any], rule: str) -> None:
    parts = rule.split(",")
    if len(parts) != 6 or parts[1] not in ("tcp", "udp") or not parts[3].isdecimal() or not parts[5].isdecimal():
        refuse(f"VBoxManage: error: Invalid port-forwarding rule {rule}", 2)
    if any(other.split(",")[0] == parts[0] for other in vm["forwards"]):
        refuse(f"VBoxManage: error: A NAT rule of this name already exists: {parts[0]}")
    vm["forwards"].append(rule)


def storagectl(world: World, words: list[str]) -> str:
    options = Options(words, ("name", "add", "controller", "portcount"))
    options.need("name", "add", "controller")
    [name] = options.count(1)
    vm = world.vm_at_rest(name)
    if options.values["name"] in vm["controllers"]:
        refuse(f"VBoxManage: error: Storage controller named '{options.values['name']}' already exists")
    vm["controllers"][options.values["name"]] = int(options.values.get("portcount", "1"))
    return ""


def storageattach(world: World, words: list[str]) -> str:
    options = Options(words, ("storagectl", "port", "device", "type", "medium"))
    options.need("storagectl", "port", "device", "type", "medium")
    [name] = options.count(1)
    vm, given = world.vm_at_rest(name), options.values
    if given["storagectl"] not in vm["controllers"]:
        refuse(f"VBoxManage: error: Could not find a storage controller named '{given['storagectl']}'")
    if given["type"] not in ("hdd", "dvddrive") or int(given["port"]) >= vm["controllers"][given["storagectl"]] or given["device"] != "0":
        refuse("VBoxManage: error: Invalid --type, --port or --device")
    if not os.path.isfile(given["medium"]):
        refuse(f"VBoxManage: error: Could not find file for the medium '{given['medium']}' (VERR_FILE_NOT_FOUND)")
    if given["type"] == "hdd":
        world.media.setdefault(given["medium"], {"uuid": os.urandom(16).hex()})
    vm["attached"][f"{given['storagectl']}-{given['port']}-{given['device']}"] = given["medium"]
    return ""


def _new_file(location: str) -> None:
    if os.path.exists(location):
        refuse(f"VBoxManage: error: Cannot create the storage unit '{location}' (VERR_ALREADY_EXISTS)")
    write(location, "a disk")


def convertfromraw(world: World, words: list[str]) -> str:
    options = Options(words, ("format",))
    source, target = options.count(2)
    if not os.path.isfile(source):
        refuse(f"VBoxManage: error: Cannot open file \"{source}\": VERR_FILE_NOT_FOUND")
    _new_file(target)
    return ""


def clonemedium(world: World, words: list[str]) -> str:
    options = Options(words, ("format",))
    kind, source, target = options.count(3)
    if kind != "disk" or not os.path.isfile(source):
        refuse(f"VBoxManage: error: Could not find file for the medium '{source}'")
    _new_file(target)
    world.media[target] = {"uuid": os.urandom(16).hex()}
    return "Clone medium created in format 'VDI'."


def createmedium(world: World, words: list[str]) -> str:
    options = Options(words, ("filename", "size", "format"))
    options.need("filename", "size")
    if options.count(1) != ["disk"]:
        refuse("Syntax error: createmedium", 2)
    _new_file(options.values["filename"])
    world.media[options.values["filename"]] = {"uuid": os.urandom(16).hex()}
    return "Medium created."


def modifymedium(world: World, words: list[str]) -> str:
    options = Options(words, ("resize",))
    options.need("resize")
    kind, location = options.count(2)
    if kind != "disk" or not os.path.isfile(location):
        refuse(f"VBoxManage: error: Could not find file for the medium '{location}'")
    return ""


def closemedium(world: World, words: list[str]) -> str:
    options = Options(words, (), ("delete",))
    kind, location = options.count(2)
    if kind != "disk" or location not in world.media:
        refuse(f"VBoxManage: error: Could not find file for the medium '{location}'")
    if any(location in vm["attached"].values() for vm in world.vms.values()):
        refuse(f"VBoxManage: error: Cannot close medium '{location}' because it is still attached\nVBOX_E_OBJECT_IN_USE")
    del world.media[location]
    if "delete" in options.values:
        os.unlink(location)
    return ""


def unattended(world: World, words: list[str]) -> str:
    if words[:1] != ["install"]:
        refuse("Syntax error: unattended", 2)
    options = Options(words[1:], ("iso", "user", "user-password-file", "full-user-name", "hostname", "locale", "time-zone",
                                  "package-selection-adjustment", "post-install-command"))
    options.need("iso", "user", "user-password-file", "hostname")
    [name] = options.count(1)
    world.vm_at_rest(name)
    if not os.path.isfile(options.values["iso"]) or not os.path.isfile(options.values["user-password-file"]):
        refuse("VBoxManage: error: VERR_FILE_NOT_FOUND")
    if "." not in options.values["hostname"]:
        refuse("VBoxManage: error: The hostname must be fully qualified")
    return ""


def startvm(world: World, words: list[str]) -> str:
    options = Options(words, ("type",))
    [name] = options.count(1)
    vm = world.vm(name)
    if options.values.get("type") not in ("headless", "gui"):
        refuse("Syntax error: Invalid --type", 2)
    if vm["state"] in RUNNING:
        refuse(f"VBoxManage: error: The machine '{name}' is already locked by a session\nVBOX_E_INVALID_OBJECT_STATE")
    vm["state"] = "running"
    return f'VM "{name}" has been successfully started.'


def controlvm(world: World, words: list[str]) -> str:
    name, verb = Options(words).count(2)
    vm = world.vm(name)
    if vm["state"] not in RUNNING:
        refuse(f"VBoxManage: error: Machine '{name}' is not currently running.")
    if verb not in ("poweroff", "acpipowerbutton", "resume") or (verb == "resume") != (vm["state"] == "paused"):
        refuse(f"VBoxManage: error: Invalid command or state: {verb}, {vm['state']}")
    vm["state"] = "running" if verb == "resume" else "poweroff"
    return ""


def discardstate(world: World, words: list[str]) -> str:
    [name] = Options(words).count(1)
    if world.vm(name)["state"] != "saved":
        refuse("VBoxManage: error: The machine is not in the saved state")
    world.vm(name)["state"] = "poweroff"
    return ""


def showvminfo(world: World, words: list[str]) -> str:
    options = Options(words, (), ("machinereadable",))
    options.need("machinereadable")
    [name] = options.count(1)
    vm = world.vm(name)
    lines = [f'name="{name}"', f'groups="{vm["groups"]}"', f"memory={vm['memory']}", f"cpus={vm['cpus']}", f'VMState="{vm["state"]}"']
    lines += [f'storagecontrollername{number}="{controller}"' for number, controller in enumerate(vm["controllers"])]
    lines += [f'"{place}"="{medium}"' for place, medium in vm["attached"].items()]
    lines += [f'Forwarding({number})="{rule}"' for number, rule in enumerate(vm["forwards"])]
    return "\n".join(lines)


def snapshot(world: World, words: list[str]) -> str:
    options = Options(words, (), ("machinereadable",))
    if len(options.words) == 2 and options.words[1] == "list":
        names = list(world.vm(options.words[0])["snapshots"])
        if not names:
            refuse("This machine does not have any snapshots")
        return "\n".join(f'SnapshotName{"-1" * number}="{name}"' for number, name in enumerate(names))
    name, verb, what = options.count(3)
    vm = world.vm(name)
    if verb == "take":
        vm["snapshots"][what] = {"state": vm["state"]}
        return f"Snapshot taken. UUID: {os.urandom(16).hex()}"
    if what not in vm["snapshots"]:
        refuse(f"VBoxManage: error: Could not find a snapshot named '{what}'\nVBOX_E_OBJECT_NOT_FOUND")
    if verb == "restore":
        world.vm_at_rest(name)
        vm["state"] = "saved" if vm["snapshots"][what]["state"] == "running" else vm["snapshots"][what]["state"]
    elif verb == "delete":
        if any(other["parent"] == [name, what] for other in world.vms.values()):
            refuse("VBoxManage: error: Snapshot has linked clones\nVBOX_E_INVALID_OBJECT_STATE")
        del vm["snapshots"][what]
    else:
        refuse(f"Syntax error: Invalid snapshot command '{verb}'", 2)
    return ""


def clonevm(world: World, words: list[str]) -> str:
    options = Options(words, ("snapshot", "options", "name", "groups", "basefolder"), ("register",))
    options.need("snapshot", "options", "name", "groups", "basefolder", "register")
    [name] = options.count(1)
    source = world.vm(name)
    if options.values["snapshot"] not in source["snapshots"]:
        refuse("VBoxManage: error: Could not find a snapshot of that name\nVBOX_E_OBJECT_NOT_FOUND")
    if options.values["options"] != "Link":
        refuse("Syntax error: --options", 2)
    parts = marshal.loads(marshal.dumps({part: source[part] for part in CLONE_PARTS}))  # a copy
    attached = {place: medium for place, medium in source["attached"].items() if medium.endswith(".iso")}
    _register(world, options, {**parts, "attached": attached, "forwards": list(source["forwards"]), "parent": [name, options.values["snapshot"]]})
    return f'Machine has been successfully cloned as "{options.values["name"]}"'


def unregistervm(world: World, words: list[str]) -> str:
    options = Options(words, (), ("delete",))
    [name] = options.count(1)
    vm = world.vm_at_rest(name)
    if any(other["parent"] and other["parent"][0] == name for other in world.vms.values()):
        refuse(f"VBoxManage: error: Cannot delete '{name}': media of linked clones hang on it\nVBOX_E_OBJECT_IN_USE")
    del world.vms[name]
    if "delete" in options.values:
        for medium in [medium for medium in vm["attached"].values() if medium in world.media]:
            del world.media[medium]
            os.unlink(medium)
        for file in os.listdir(vm["folder"]):
            os.unlink(os.path.join(vm["folder"], file))
        os.rmdir(vm["folder"])
    return ""


COMMANDS: Mapping[str, Callable[[World, list[str]], str]] = {
    "--version": version, "list": list_, **{function.__name__: function for function in (
        hostonlyif, hostonlynet, createvm, modifyvm, storagectl, storageattach, convertfromraw, clonemedium, createmedium, modifymedium, closemedium,
        unattended, startvm, controlvm, discardstate, showvminfo, snapshot, clonevm, unregistervm)}}


def failing(words: Sequence[str]) -> str | None:
    """``before`` or ``after`` where this call is to fail. Counts it and writes it down."""
    line = "\t".join(words).replace("\n", " ")
    with open(os.path.join(HOME, "calls"), "a+") as file:
        file.seek(0)
        seen = file.read().splitlines()
        file.write(line + "\n")
    number, _, mode = os.environ.get("FAKE_VBOX_FAIL", "").partition(":")
    if number == "once":
        return None if line in seen else mode
    return mode if number in words or number == str(len(seen) + 1) else None


def load() -> dict[str, Any] | None:
    try:
        with open(os.path.join(HOME, "state"), "rb") as file:
            return marshal.load(file)
    except FileNotFoundError:
        return None


def save(state: dict[str, Any]) -> None:
    with open(os.path.join(HOME, "state"), "wb") as file:
        marshal.dump(state, file)


def main(words: Sequence[str]) -> int:
    fail = failing(words)
    if fail == "before":
        print("VBoxManage: error: failed on demand", file=sys.stderr)
        return 1
    world = World(load())
    try:
        if not words or words[0] not in COMMANDS:
            refuse(f"Syntax error: Unknown command: {' '.join(words[:1])}", 2)
        said = COMMANDS[words[0]](world, list(words[1:]))
    except Refusal as refusal:
        print(refusal, file=sys.stderr)
        return refusal.code
    save(world.saved())
    if fail == "after":
        print("VBoxManage: error: failed on demand, afterwards", file=sys.stderr)
        return 1
    if said:
        print(said)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
