package conformance

import (
	"runtime"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// user is a user and group that is not root.
const user = 4711

// processFields are about the process.
func processFields() []honoured {
	return []honoured{
		{name: "capabilities", about: "capabilities", sentence: "root has the capabilities of the spec, and no others",
			fields: []string{"/process/capabilities/bounding", "/process/capabilities/inheritable"},
			ask: func(s *specs.Spec) {
				all, some := []string{"CAP_CHOWN", "CAP_KILL"}, []string{"CAP_KILL"}
				s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Permitted: all, Effective: all, Inheritable: some}
			},
			facts: []fact{
				is("status CapBnd", "0000000000000021"), is("status CapPrm", "0000000000000021"), is("status CapEff", "0000000000000021"),
				is("status CapInh", "0000000000000020"), is("status CapAmb", "0000000000000000"),
			}},
		{name: "ambient", about: "capabilities", sentence: "a user has the ambient capabilities of the spec, and no others",
			fields: []string{"/process/capabilities/permitted", "/process/capabilities/ambient"},
			ask: func(s *specs.Spec) {
				all, some := []string{"CAP_CHOWN", "CAP_KILL"}, []string{"CAP_KILL"}
				s.Process.User = specs.User{UID: user, GID: user}
				s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: all, Permitted: some, Effective: some, Inheritable: some, Ambient: some}
			},
			facts: []fact{is("status CapPrm", "0000000000000020"), is("status CapEff", "0000000000000020"), is("status CapAmb", "0000000000000020")}},
		{name: "no-new-privileges", sentence: "the program cannot gain privileges", fields: []string{"/process/noNewPrivileges"},
			ask:   func(s *specs.Spec) { s.Process.NoNewPrivileges = true },
			facts: []fact{is("status NoNewPrivs", "1")}},
		{name: "rlimits", sentence: "the resource limits are those of the spec",
			fields: []string{"/process/rlimits/*/type", "/process/rlimits/*/hard", "/process/rlimits/*/soft"},
			ask: func(s *specs.Spec) {
				s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Hard: 8192, Soft: 4096}, {Type: "RLIMIT_SIGPENDING", Hard: 77, Soft: 66}}
			},
			facts: []fact{is("limits Max core file size", "4096 8192 bytes"), is("limits Max pending signals", "66 77 signals")}},
		{name: "groups", sentence: "the program is in the additional groups of the spec, and in no others",
			fields: []string{"/process/user/additionalGids"},
			ask:    func(s *specs.Spec) { s.Process.User.AdditionalGids = []uint32{5001, 5002} },
			facts:  []fact{is("status Groups", "5001 5002")}},
		{name: "umask", sentence: "the umask is the spec's", fields: []string{"/process/user/umask"},
			ask:   func(s *specs.Spec) { s.Process.User.Umask = new(uint32(0o27)) },
			facts: []fact{is("status Umask", "0027")}},
		{name: "oom-score", sentence: "the kernel counts what the spec adds when it looks for a process to kill", fields: []string{"/process/oomScoreAdj"},
			ask:   func(s *specs.Spec) { s.Process.OOMScoreAdj = new(321) },
			facts: []fact{is("file /proc/self/oom_score_adj", "321")}},
		{name: "scheduler", sentence: "the scheduling policy is the spec's",
			fields: []string{"/process/scheduler/policy", "/process/scheduler/nice", "/process/scheduler/flags"},
			ask: func(s *specs.Spec) {
				s.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedBatch, Nice: 7, Flags: []specs.LinuxSchedulerFlag{specs.SchedFlagResetOnFork}}
			},
			facts: []fact{is("scheduler", "3 7 1")}},
		{name: "io-priority", sentence: "the I/O priority is the spec's", fields: []string{"/process/ioPriority/class", "/process/ioPriority/priority"},
			ask: func(s *specs.Spec) {
				s.Process.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 6}
			},
			facts: []fact{is("ioprio", "2 6")}},
		{name: "cpu-affinity", sentence: "the program runs on the processors of the spec", fields: []string{"/process/execCPUAffinity/final"}, only: execOnly,
			ask:     func(s *specs.Spec) { s.Process.ExecCPUAffinity = &specs.CPUAffinity{Final: "0"} },
			facts:   []fact{is("status Cpus_allowed_list", "0")},
			missing: oneProcessor},
		{name: "apparmor", sentence: "an AppArmor profile that is not loaded is an error", fields: []string{"/process/apparmorProfile"}, refused: true,
			ask: func(s *specs.Spec) { s.Process.ApparmorProfile = "stage1-verify-absent" }},
		{name: "selinux", sentence: "an SELinux label that the kernel does not know is an error", fields: []string{"/process/selinuxLabel"}, refused: true,
			ask: func(s *specs.Spec) { s.Process.SelinuxLabel = "stage1-verify-absent" }},
	}
}

func oneProcessor() string {
	if runtime.NumCPU() < 2 {
		return "the machine has one processor"
	}
	return ""
}
