package spec

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// silent has the fields whose empty value asks for nothing, like an absent field. It includes
// the fields that only group other fields.
var silent = map[reflect.Type]string{
	reflect.TypeFor[specs.Spec]():  "annotations domainname freebsd hooks hostname linux mounts ociVersion process root solaris vm windows zos",
	reflect.TypeFor[specs.Hooks](): "createContainer createRuntime poststart poststop prestart startContainer",
	reflect.TypeFor[specs.Hook]():  "args env path",
	reflect.TypeFor[specs.Root]():  "path readonly",
	reflect.TypeFor[specs.Mount](): "destination gidMappings options source type uidMappings",

	reflect.TypeFor[specs.Process](): "apparmorProfile args commandLine consoleSize cwd env execCPUAffinity noNewPrivileges rlimits selinuxLabel terminal user",
	// A process without user and group runs as user and group 0.
	reflect.TypeFor[specs.User](): "additionalGids gid uid username",
	// An empty set of processors does not change the affinity, and an empty size does not
	// change the terminal's size.
	reflect.TypeFor[specs.CPUAffinity]():     "final initial",
	reflect.TypeFor[specs.Box]():             "height width",
	reflect.TypeFor[specs.LinuxIOPriority](): "class",
	reflect.TypeFor[specs.POSIXRlimit]():     "type",
	// "If not set, the runtime must use the value 0."
	reflect.TypeFor[specs.Scheduler](): "deadline flags nice period policy priority runtime",

	reflect.TypeFor[specs.Linux]():                      "cgroupsPath devices gidMappings maskedPaths mountLabel namespaces netDevices readonlyPaths resources rootfsPropagation sysctl timeOffsets uidMappings",
	reflect.TypeFor[specs.LinuxDevice]():                "path type",
	reflect.TypeFor[specs.LinuxIDMapping]():             "size",
	reflect.TypeFor[specs.LinuxIntelRdt]():              "closID enableMonitoring l3CacheSchema memBwSchema schemata",
	reflect.TypeFor[specs.LinuxMemoryPolicy]():          "flags mode nodes",
	reflect.TypeFor[specs.LinuxNamespace]():             "path type",
	reflect.TypeFor[specs.LinuxNetDevice]():             "name",
	reflect.TypeFor[specs.LinuxPersonality]():           "domain flags",
	reflect.TypeFor[specs.LinuxSeccomp]():               "architectures defaultAction listenerMetadata listenerPath syscalls",
	reflect.TypeFor[specs.LinuxSyscall]():               "action args names",
	reflect.TypeFor[specs.LinuxSeccompArg]():            "op valueTwo",
	reflect.TypeFor[map[string]specs.LinuxTimeOffset](): "*",
	reflect.TypeFor[specs.LinuxTimeOffset]():            "nanosecs secs",

	reflect.TypeFor[specs.Windows]():             "credentialSpec devices ignoreFlushesDuringBoot layerFolders network resources servicing",
	reflect.TypeFor[specs.WindowsDevice]():       "id idType",
	reflect.TypeFor[specs.WindowsHyperV]():       "utilityVMPath",
	reflect.TypeFor[specs.WindowsNetwork]():      "DNSSearchList allowUnqualifiedDNSQuery endpointList networkNamespace networkSharedContainerName",
	reflect.TypeFor[specs.WindowsResources]():    "cpu memory storage",
	reflect.TypeFor[specs.WindowsCPUResources](): "affinity",

	reflect.TypeFor[specs.VM]():           "hwconfig hypervisor image kernel",
	reflect.TypeFor[specs.HWConfig]():     "deviceTree dtdevs iomems irqs",
	reflect.TypeFor[specs.VMHypervisor](): "parameters path",
	reflect.TypeFor[specs.VMImage]():      "format path",
	reflect.TypeFor[specs.VMKernel]():     "initrd parameters path",

	reflect.TypeFor[specs.Solaris]():             "anet cappedCPU cappedMemory limitpriv maxShmMemory milestone",
	reflect.TypeFor[specs.SolarisAnet]():         "allowedAddress configureAllowedAddress defrouter linkProtection linkname lowerLink macAddress",
	reflect.TypeFor[specs.SolarisCappedCPU]():    "ncpus",
	reflect.TypeFor[specs.SolarisCappedMemory](): "physical swap",
	reflect.TypeFor[specs.ZOS]():                 "namespaces",
	reflect.TypeFor[specs.ZOSNamespace]():        "path type",
	reflect.TypeFor[specs.FreeBSD]():             "devices jail",
	reflect.TypeFor[specs.FreeBSDDevice]():       "path",
	reflect.TypeFor[specs.FreeBSDJail]():         "allow host interface ip4 ip6 parent sysvmsg sysvsem sysvshm vnet vnetInterfaces",
	reflect.TypeFor[specs.FreeBSDJailAllow]():    "chflags mlock mount quotas rawSockets setHostname socketAf",
}

// everyField calls f for each field of the spec except those of linux.resources, once for each
// pointer that leads to the field.
func everyField(f func(in reflect.Type, name, pointer string)) {
	var walk func(t reflect.Type, pointer string)
	walk = func(t reflect.Type, pointer string) {
		switch t.Kind() {
		case reflect.Pointer:
			walk(t.Elem(), pointer)
		case reflect.Slice, reflect.Array:
			walk(t.Elem(), pointer+"/*")
		case reflect.Map:
			f(t, anyKey, pointer+"/*")
			walk(t.Elem(), pointer+"/*")
		case reflect.Struct:
			fields := fieldsOf(t)
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				f(t, name, pointer+"/"+name)
				if fields[name] != reflect.TypeFor[*specs.LinuxResources]() {
					walk(fields[name], pointer+"/"+name)
				}
			}
		}
	}
	walk(reflect.TypeFor[specs.Spec](), "")
}

// A field that is new in a later version of specs-go must be put into one of the two
// tables.
func TestOfEveryFieldOfTheSpecItIsKnownWhetherItsPresenceAsks(t *testing.T) {
	listed := map[reflect.Type]map[string]bool{}
	for in, names := range present {
		for _, name := range names {
			if listed[in] == nil {
				listed[in] = map[string]bool{}
			}
			listed[in][name] = true
		}
	}
	seen := map[reflect.Type]map[string]bool{}
	everyField(func(in reflect.Type, name, pointer string) {
		if seen[in] == nil {
			seen[in] = map[string]bool{}
		}
		seen[in][name] = true
		if asks, not := listed[in][name], slices.Contains(strings.Fields(silent[in]), name); asks == not {
			t.Errorf("%s: its presence asks: %t, and does not ask: %t", pointer, asks, not)
		}
	})
	for in, names := range listed {
		for name := range names {
			if !seen[in][name] {
				t.Errorf("%v has no %q", in, name)
			}
		}
	}
	for in, names := range silent {
		for _, name := range strings.Fields(names) {
			if !seen[in][name] {
				t.Errorf("%v has no %q", in, name)
			}
		}
	}
}

func TestTheABIListsTheFieldsThatAskByBeingThere(t *testing.T) {
	documented := documentedPresence(t)
	everyField(func(in reflect.Type, name, pointer string) {
		switch {
		case strings.HasPrefix(pointer, "/annotations/"): // stage 0's
		case strings.HasPrefix(pointer, "/hooks/"):
			pointer = "/hooks/*/*/" + name
			fallthrough
		default:
			if slices.Contains(present[in], name) != slices.Contains(documented, pointer) {
				t.Errorf("%s: documented: %t", pointer, slices.Contains(documented, pointer))
			}
		}
	})
}

// documentedPresence returns the pointers of the table in docs/stage1-abi.md. A name without
// a slash replaces the last word of the pointer before it.
func documentedPresence(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/stage1-abi.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| field | an empty one asks for |\n|---|---|\n")
	if !ok {
		t.Fatal("docs/stage1-abi.md has no such table")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var all []string
	for line := range strings.Lines(table) {
		cell := strings.Split(line, "|")[1]
		for i, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			switch last := ""; {
			case m[1][0] == '/':
				all = append(all, m[1])
			case i > 0:
				last = all[len(all)-1]
				if strings.Contains(cell, "and in it") {
					all = append(all, "/process/capabilities/"+m[1])
				} else {
					all = append(all, last[:strings.LastIndexByte(last, '/')+1]+m[1])
				}
			}
		}
		if strings.Contains(cell, "uidMappings") {
			for _, where := range []string{"/linux/gidMappings/*/", "/mounts/*/uidMappings/*/", "/mounts/*/gidMappings/*/"} {
				all = append(all, where+"containerID", where+"hostID")
			}
		}
	}
	return all
}

func TestAFieldAsksByItsPresenceOrItsValue(t *testing.T) {
	for text, want := range map[string]bool{
		`{"process":{"capabilities":{}}}`:                   true,
		`{"process":{"capabilities":null}}`:                 false,
		`{"process":{"oomScoreAdj":0}}`:                     true,
		`{"process":{"user":{"uid":0,"gid":0}}}`:            false,
		`{"process":{"user":{"umask":0}}}`:                  true,
		`{"process":{"execCPUAffinity":{"initial":""}}}`:    false,
		`{"linux":{"netDevices":{}}}`:                       false,
		`{"linux":{"netDevices":{"eth1":{}}}}`:              true,
		`{"linux":{"sysctl":{"kernel.domainname":""}}}`:     true,
		`{"linux":{"timeOffsets":{"boottime":{"secs":0}}}}`: false,
		`{"linux":{"resources":{"memory":{}}}}`:             false,
		`{"windows":{"credentialSpec":{"a":0}}}`:            false,
		`{"windows":{"credentialSpec":{"a":1}}}`:            true,
		`{"windows":{"hyperv":{}}}`:                         true,
	} {
		d, err := Read[specs.Spec]([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Top().Asks(); got != want {
			t.Errorf("%s asks: %t", text, got)
		}
	}
}
