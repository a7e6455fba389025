package conformance_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/conformance"
)

// lies has the changes that a lying stage1 makes to fields that it cannot just remove, because
// the spec would be invalid without them. The mounts 3 and 4 and the namespaces are those that
// checks add to the spec of every app.
func lies() map[string]string {
	namespaces := `/linux/namespaces '[{"type":"mount"},{"type":"pid"},{"type":"ipc"}]'`
	return map[string]string{
		"/linux/devices/*/major":              `/linux/devices/*/major 2`,
		"/linux/devices/*/minor":              `/linux/devices/*/minor 2`,
		"/linux/devices/*/path":               `/linux/devices/*/path '"/dev/another"'`,
		"/linux/devices/*/type":               `/linux/devices/*/type '"b"'`,
		"/linux/gidMappings/*/containerID":    `/linux/gidMappings/*/size 65537`,
		"/linux/gidMappings/*/hostID":         `/linux/gidMappings/*/hostID 200000`,
		"/linux/gidMappings/*/size":           `/linux/gidMappings/*/size 1000`,
		"/linux/memoryPolicy/mode":            `/linux/memoryPolicy/mode '"MPOL_BIND"'`,
		"/linux/namespaces/*/type":            namespaces,
		"/linux/personality/domain":           `/linux/personality/domain '"LINUX"'`,
		"/linux/seccomp/defaultAction":        `/linux/seccomp/defaultAction '"SCMP_ACT_ALLOW"'`,
		"/linux/seccomp/listenerPath":         `/linux/seccomp/listenerPath '"/run/another.sock"'`,
		"/linux/seccomp/syscalls/*/action":    `/linux/seccomp/syscalls/*/action '"SCMP_ACT_ALLOW"'`,
		"/linux/seccomp/syscalls/*/args/*/op": `/linux/seccomp/syscalls/*/args/*/op '"SCMP_CMP_NE"'`,
		"/linux/seccomp/syscalls/*/names":     `/linux/seccomp/syscalls/*/names '["getppid"]'`,
		"/linux/uidMappings/*/containerID":    `/linux/uidMappings/*/size 65537`,
		"/linux/uidMappings/*/hostID":         `/linux/uidMappings/*/hostID 200000`,
		"/linux/uidMappings/*/size":           `/linux/uidMappings/*/size 1000`,
		"/mounts/*/destination":               `/mounts/3/destination '"/sys"'`,
		"/mounts/*/gidMappings/*/containerID": `/mounts/*/gidMappings/*/containerID 7`,
		"/mounts/*/gidMappings/*/hostID":      `/mounts/*/gidMappings/*/hostID 7`,
		"/mounts/*/gidMappings/*/size":        `/mounts/*/gidMappings '[{"containerID":7,"hostID":7,"size":1}]'`,
		"/mounts/*/options":                   `/mounts/3/options '["size=64k"]'`,
		"/mounts/*/source":                    `/mounts/4/source '"/proc"'`,
		"/mounts/*/type":                      `/mounts/3/type '"ramfs"'`,
		"/mounts/*/uidMappings/*/containerID": `/mounts/*/uidMappings/*/containerID 7`,
		"/mounts/*/uidMappings/*/hostID":      `/mounts/*/uidMappings/*/hostID 7`,
		"/mounts/*/uidMappings/*/size":        `/mounts/*/uidMappings '[{"containerID":7,"hostID":7,"size":1}]'`,
		"/linux/netDevices/*/name":            `/linux/netDevices`,
		"/process/args":                       `/process/args/2 '"another"'`,
		"/process/cwd":                        `/process/cwd '"/"'`,
		"/process/ioPriority/class":           `/process/ioPriority/class '"IOPRIO_CLASS_IDLE"'`,
		"/process/rlimits/*/hard":             `/process/rlimits/*/hard 9000`,
		"/process/rlimits/*/type":             `/process/rlimits/0/type '"RLIMIT_FSIZE"'`,
		"/process/scheduler/policy":           `/process/scheduler/policy '"SCHED_IDLE"'`,
		"/hooks/prestart/*/path":              `/hooks/prestart/*/path '"/bin/true"'`,
		"/hooks/createRuntime/*/path":         `/hooks/createRuntime/*/path '"/bin/true"'`,
		"/hooks/createContainer/*/path":       `/hooks/createContainer/*/path '"/bin/true"'`,
		"/hooks/poststart/*/path":             `/hooks/poststart/*/path '"/bin/true"'`,
		"/hooks/startContainer/*/path":        `/hooks/startContainer`,
	}
}

// notLied are fields about which no stage1 of the tests lies: without them no program would run
// that could notice the loss, or the request has the field a second time.
var notLied = []string{"/root/path", "/process/terminal"}

// Each stage1 here is native, except that it ignores some of the fields that it declares, in apps
// and in execs: at most one field for each check.
func TestEveryIgnoredFieldIsFoundByName(t *testing.T) {
	for i, l := range liars() {
		t.Run(fmt.Sprint("liar ", i), func(t *testing.T) {
			t.Parallel()
			v := verifyJSON(t, l.verification(t)...)
			for field, checks := range l.fields {
				for _, id := range checks {
					if i := slices.IndexFunc(v.Checks, func(c verifiedCheck) bool { return c.ID == id }); i < 0 {
						t.Errorf("%s was not run", id)
					} else if c := v.Checks[i]; c.Outcome != "failed" || !named(id, c.Words, field) {
						t.Errorf("%s is ignored: %s: %s: %s", field, id, c.Outcome, c.Words)
					}
				}
			}
		})
	}
}

// named reports whether the failure of a check names the field that is ignored.
func named(check, words, field string) bool {
	return !strings.Contains(check, "honours/") || strings.Contains(words, field)
}

// liar is a stage1 that ignores some fields. fields maps each to the checks that notice it.
type liar struct {
	fields map[string][]string
	taken  map[string]bool
}

// liars spreads the fields that are checked over as few liars as possible.
func liars() []*liar {
	shownBy := map[string][]string{}
	for _, c := range conformance.Checks() {
		for _, f := range c.Fields {
			if !slices.Contains(notLied, f) && !strings.HasPrefix(f, "/linux/resources/") { // which stage 0 takes from config.json
				shownBy[f] = append(shownBy[f], c.ID)
			}
		}
	}
	var all []*liar
	for _, field := range slices.Sorted(maps.Keys(shownBy)) {
		// All checks use the fields that every app has, so a liar that ignores one of these
		// ignores no other field. Without its other fields a hook ends before its timeout.
		needs := append([]string{}, shownBy[field]...)
		for _, common := range []string{"/mounts/", "/process/args", "/process/env", "/process/cwd", "/linux/namespaces"} {
			if strings.HasPrefix(field, common) || strings.HasSuffix(field, "/timeout") {
				needs = append(needs, "alone")
			}
		}
		at := slices.IndexFunc(all, func(l *liar) bool {
			return !slices.Contains(needs, "alone") && !slices.ContainsFunc(append(needs, "alone"), func(c string) bool { return l.taken[c] })
		})
		if at < 0 {
			at, all = len(all), append(all, &liar{map[string][]string{}, map[string]bool{}})
		}
		all[at].fields[field] = shownBy[field]
		for _, n := range needs {
			all[at].taken[n] = true
		}
	}
	return all
}

// verification returns the arguments of a verification by the checks of the fields.
func (l *liar) verification(t *testing.T) []string {
	t.Helper()
	body, args := "set -f\n", []string{}
	for field, checks := range l.fields {
		body += "lie " + cmp.Or(lies()[field], field) + "\n"
		for _, c := range checks {
			args = append(args, "--run", c)
		}
	}
	return append(args, broken{liar: true, more: map[string]string{"app_add": body, "enter": body}}.image(t))
}
