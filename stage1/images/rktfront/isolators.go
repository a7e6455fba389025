package rktfront

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/isolator"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// defaultCapabilities are the capabilities of an app without an isolator for
// capabilities, as in rkt.
var defaultCapabilities = [...]string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_KILL", "CAP_MKNOD", "CAP_NET_RAW",
	"CAP_NET_BIND_SERVICE", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETFCAP", "CAP_SYS_CHROOT",
}

// set is the value of isolators that have a list of names.
type set struct {
	Set []string `json:"set"`
}

// isolate translates isolators into an OCI spec.
func isolate(a *podmanifest.App, s *specs.Spec, o *Options) error {
	caps := defaultCapabilities[:]
	calling := podmanifest.Isolator{Name: isolator.RemoveCalls, Value: json.RawMessage(`{"set": ["` + isolator.Nothing + `"]}`)}
	said := false
	for _, i := range a.Isolators {
		var err error
		switch i.Name {
		case "os/linux/capabilities-retain-set", "os/linux/capabilities-remove-set":
			var of set
			if err = json.Unmarshal(i.Value, &of); err == nil && strings.HasSuffix(i.Name, "retain-set") {
				caps = of.Set
			} else if err == nil {
				caps = slices.DeleteFunc(slices.Clone(caps), func(c string) bool { return slices.Contains(of.Set, c) })
			}
		case "os/linux/no-new-privileges":
			err = json.Unmarshal(i.Value, &s.Process.NoNewPrivileges)
		case "os/linux/oom-score-adj":
			err = json.Unmarshal(i.Value, &s.Process.OOMScoreAdj)
		case isolator.RetainCalls, isolator.RemoveCalls:
			if said {
				err = errors.New("there is one of system calls already")
			}
			calling, said = i, true
		case "os/linux/selinux-context":
			err = label(s, i)
		case "os/unix/sysctl":
			err = json.Unmarshal(i.Value, &s.Linux.Sysctl)
		case "resource/memory", "resource/cpu", "os/linux/cpu-shares": // the cgroup of the caller has these limits
		default:
			err = errors.New("it is not supported")
		}
		if err != nil {
			return fmt.Errorf("isolator %s: %w", i.Name, err)
		}
	}
	if !o.AnySystemCall {
		if err := isolator.Filter(s, calling); err != nil {
			return fmt.Errorf("isolator %s: %w", calling.Name, err)
		}
	}
	if o.AnyCapability {
		caps = abi.Capabilities()
	}
	s.Process.Capabilities = &specs.LinuxCapabilities{Bounding: caps}
	if s.Process.User.UID == 0 { // a program of root gets the bounding set
		s.Process.Capabilities.Effective, s.Process.Capabilities.Permitted = caps, caps
	}
	return nil
}

func label(s *specs.Spec, i podmanifest.Isolator) error {
	var c struct{ User, Role, Type, Level string }
	if err := json.Unmarshal(i.Value, &c); err != nil {
		return err
	}
	s.Process.SelinuxLabel = strings.Join([]string{c.User, c.Role, c.Type, c.Level}, ":")
	return nil
}
