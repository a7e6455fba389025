package spec

import (
	"reflect"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// anyKey stands for every key of a map in the table of presence.
const anyKey = "*"

// present has the fields of runtime-spec 1.3 that ask for something by their presence,
// whatever their value, unless it is null. Its keys are the structs and maps that have
// these fields. For every other field an empty value asks for the same as no field.
// docs/stage1-abi.md, section 9, has the same table with the reasons. Fields of
// linux.resources are not listed, because stage 0 enforces them. No code may change the
// map.
var present = map[reflect.Type][]string{
	reflect.TypeFor[specs.Process]():           {"capabilities", "oomScoreAdj", "scheduler", "ioPriority"},
	reflect.TypeFor[specs.User]():              {"umask"},
	reflect.TypeFor[specs.LinuxIOPriority]():   {"priority"},
	reflect.TypeFor[specs.LinuxCapabilities](): {"bounding", "effective", "inheritable", "permitted", "ambient"},
	reflect.TypeFor[specs.POSIXRlimit]():       {"soft", "hard"},
	reflect.TypeFor[specs.Hook]():              {"timeout"},

	reflect.TypeFor[specs.LinuxIDMapping]():            {"containerID", "hostID"},
	reflect.TypeFor[specs.Linux]():                     {"seccomp", "intelRdt", "memoryPolicy", "personality"},
	reflect.TypeFor[map[string]string]():               {anyKey}, // sysctl
	reflect.TypeFor[map[string]specs.LinuxNetDevice](): {anyKey},
	reflect.TypeFor[specs.LinuxDevice]():               {"major", "minor", "fileMode", "uid", "gid"},
	reflect.TypeFor[specs.LinuxSeccomp]():              {"defaultErrnoRet", "flags"},
	reflect.TypeFor[specs.LinuxSyscall]():              {"errnoRet"},
	reflect.TypeFor[specs.LinuxSeccompArg]():           {"index", "value"},

	reflect.TypeFor[specs.Windows]():                 {"hyperv"},
	reflect.TypeFor[specs.WindowsMemoryResources]():  {"limit"},
	reflect.TypeFor[specs.WindowsCPUResources]():     {"count", "shares", "maximum"},
	reflect.TypeFor[specs.WindowsCPUGroupAffinity](): {"mask", "group"},
	reflect.TypeFor[specs.WindowsStorageResources](): {"iops", "bps", "sandboxSize"},
	reflect.TypeFor[specs.HWConfig]():                {"vcpus", "memory"},
	reflect.TypeFor[specs.IOMems]():                  {"firstGFN", "firstMFN", "nrMFNs"},
	reflect.TypeFor[specs.FreeBSDDevice]():           {"mode"},
	reflect.TypeFor[specs.FreeBSDJail]():             {"ip4Addr", "ip6Addr", "enforceStatfs"},
	reflect.TypeFor[specs.FreeBSDJailAllow]():        {"reservedPorts", "suser"},
}
