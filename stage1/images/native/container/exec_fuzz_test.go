package container

import (
	"encoding/json"
	"path"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// The process of an exec is any JSON text that a client of containerd sends. It is refused,
// or becomes a plan that is the same after it was decoded and that execve can carry out.
func FuzzAnExecIsRefusedOrPlanned(f *testing.F) {
	f.Add([]byte(`{"args":["true"],"cwd":"/"}`), "c", true)
	f.Add([]byte(`{"args":["sh","-c","exit 7"],"cwd":"/tmp/..","env":["PATH=/bin","A=1","A=2","HOME="],"terminal":true,
		"consoleSize":{"height":25,"width":80},"user":{"uid":1000,"gid":100,"umask":63,"additionalGids":[4,5]},
		"capabilities":{"bounding":["CAP_KILL","CAP_SYS_PTRACE"],"effective":["CAP_KILL"],"inheritable":[],"permitted":["CAP_KILL"],"ambient":[]},
		"rlimits":[{"type":"RLIMIT_NOFILE","soft":1,"hard":2},{"type":"RLIMIT_CORE","soft":18446744073709551615,"hard":18446744073709551615}],
		"noNewPrivileges":true,"oomScoreAdj":-500,"scheduler":{"policy":"SCHED_DEADLINE","nice":3,"flags":["SCHED_FLAG_RECLAIM"],"runtime":5,"deadline":6,"period":7},
		"ioPriority":{"class":"IOPRIO_CLASS_BE","priority":4},"execCPUAffinity":{"initial":"0-3,7","final":"1"}}`), "c", false)
	f.Fuzz(func(t *testing.T, raw []byte, id string, keyring bool) {
		var p specs.Process
		if json.Unmarshal(raw, &p) != nil {
			return
		}
		for _, label := range []string{p.ApparmorProfile, p.SelinuxLabel} {
			if label != "" {
				return // the answer is the kernel's
			}
		}
		prepared, err := PrepareExec(ExecRequest{
			Request: abi.Request{Container: id, Options: &abi.Options{NoNewKeyring: !keyring}},
			Process: &p, App: &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{}},
		})
		if err != nil {
			if err.Error() == "" {
				t.Error("a refusal without a word")
			}
			return
		}
		defer prepared.Close()
		if len(prepared.Files) > 0 {
			t.Errorf("%d descriptors", len(prepared.Files))
		}
		plan, err := prepared.Config()
		if err != nil {
			t.Fatal(err)
		}
		c, err := decodeConfig(plan)
		must(t, err)
		if !c.Exec || c.Rootfs != nil || len(c.Mounts) > 0 || c.Hooks != nil {
			t.Errorf("it is no plan of an exec: %+v", c)
		}
		checkExec(t, &p, &c.Process)
	})
}

func checkExec(t *testing.T, p *specs.Process, got *process) {
	if !reflect.DeepEqual(got.Args, p.Args) || got.UID != p.User.UID || got.GID != p.User.GID || got.NoNewPrivileges != p.NoNewPrivileges {
		t.Errorf("%+v became %+v", p, got)
	}
	if !path.IsAbs(got.Cwd) || path.Clean(got.Cwd) != got.Cwd {
		t.Errorf("the working directory is %q", got.Cwd)
	}
	names := map[string]bool{}
	for _, e := range got.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" || names[name] {
			t.Errorf("the environment is %q", got.Env)
		}
		names[name] = true
	}
	for _, text := range append(append([]string{got.Cwd}, got.Args...), got.Env...) {
		if strings.ContainsRune(text, 0) {
			t.Errorf("%q has a null byte", text)
		}
	}
	for _, l := range got.Rlimits {
		if l.Resource < 0 || l.Resource > 15 {
			t.Errorf("limit %+v", l)
		}
	}
	if p.Capabilities == nil && got.Caps != (capabilities{}) {
		t.Errorf("capabilities %+v, and the process has none", got.Caps)
	}
}
