package conformance

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// processFields are about the process.
func processFields(v *values) []honoured {
	all, some := []string{v.capabilities[0].name, v.capabilities[1].name}, []string{v.capabilities[1].name}
	both, one := mask(v.capabilities[:]...), mask(v.capabilities[1])
	return []honoured{
		{name: "capabilities", about: "capabilities", sentence: "root has the capabilities of the spec, and no others",
			fields: []string{"/process/capabilities/bounding", "/process/capabilities/inheritable"},
			ask: func(s *specs.Spec) {
				s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Permitted: all, Effective: all, Inheritable: some}
			},
			facts: []fact{
				is("status CapBnd", both), is("status CapPrm", both), is("status CapEff", both),
				is("status CapInh", one), is("status CapAmb", mask()),
			}},
		{name: "ambient", about: "capabilities", sentence: "a user has the ambient capabilities of the spec, and no others",
			fields: []string{"/process/capabilities/permitted", "/process/capabilities/ambient"},
			ask: func(s *specs.Spec) {
				s.Process.User = specs.User{UID: v.user, GID: v.group}
				s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Permitted: some, Effective: some, Inheritable: some, Ambient: some}
			},
			facts: []fact{is("status CapPrm", one), is("status CapEff", one), is("status CapAmb", one)}},
		{name: "no-new-privileges", sentence: "the program cannot gain privileges", fields: []string{"/process/noNewPrivileges"},
			ask:   func(s *specs.Spec) { s.Process.NoNewPrivileges = true },
			facts: []fact{is("status NoNewPrivs", "1")}},
		{name: "rlimits", sentence: "the resource limits are those of the spec",
			fields: []string{"/process/rlimits/*/type", "/process/rlimits/*/hard", "/process/rlimits/*/soft"},
			ask: func(s *specs.Spec) {
				s.Process.Rlimits = []specs.POSIXRlimit{v.rlimits[0].spec(), v.rlimits[1].spec()}
			},
			facts: []fact{v.rlimits[0].fact(), v.rlimits[1].fact()}},
		{name: "groups", sentence: "the program is in the additional groups of the spec, and in no others",
			fields: []string{"/process/user/additionalGids"},
			ask:    func(s *specs.Spec) { s.Process.User.AdditionalGids = slices.Clone(v.groups) },
			facts:  []fact{is("status Groups", fmt.Sprintf("%d %d", v.groups[0], v.groups[1]))}},
		{name: "umask", sentence: "the umask is the spec's", fields: []string{"/process/user/umask"},
			ask:   func(s *specs.Spec) { s.Process.User.Umask = new(v.umask) },
			facts: []fact{is("status Umask", fmt.Sprintf("%04o", v.umask))}},
		{name: "oom-score", sentence: "the kernel counts what the spec adds when it looks for a process to kill", fields: []string{"/process/oomScoreAdj"},
			ask:   func(s *specs.Spec) { s.Process.OOMScoreAdj = new(v.score) },
			facts: []fact{is("file /proc/self/oom_score_adj", fmt.Sprint(v.score))}},
		{name: "scheduler", sentence: "the scheduling policy is the spec's",
			fields: []string{"/process/scheduler/policy", "/process/scheduler/nice", "/process/scheduler/flags"},
			ask: func(s *specs.Spec) {
				s.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedBatch, Nice: v.nice, Flags: []specs.LinuxSchedulerFlag{specs.SchedFlagResetOnFork}}
			},
			facts: []fact{is("scheduler", fmt.Sprintf("3 %d 1", v.nice))}},
		{name: "io-priority", sentence: "the I/O priority is the spec's", fields: []string{"/process/ioPriority/class", "/process/ioPriority/priority"},
			ask: func(s *specs.Spec) {
				s.Process.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: v.ioPriority}
			},
			facts: []fact{is("ioprio", fmt.Sprintf("2 %d", v.ioPriority))}},
		{name: "cpu-affinity", sentence: "the program runs on the processors of the spec", fields: []string{"/process/execCPUAffinity/final"}, only: execOnly,
			ask:     func(s *specs.Spec) { s.Process.ExecCPUAffinity = &specs.CPUAffinity{Final: "0"} },
			facts:   []fact{is("status Cpus_allowed_list", "0")},
			missing: oneProcessor},
		{name: "apparmor", sentence: "an AppArmor profile that is not loaded is an error", fields: []string{"/process/apparmorProfile"}, refused: true,
			ask: func(s *specs.Spec) { s.Process.ApparmorProfile = v.label }},
		{name: "selinux", sentence: "an SELinux label that the kernel does not know is an error", fields: []string{"/process/selinuxLabel"}, refused: true,
			ask: func(s *specs.Spec) { s.Process.SelinuxLabel = v.label }},
	}
}

func oneProcessor() string {
	if runtime.NumCPU() < 2 {
		return "the machine has one processor"
	}
	return ""
}
