package machine

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestAConfigurationThatNoMachineCanHaveIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"":                         func(*Config) {},
		"no reaper":                func(c *Config) { c.Children = nil },
		`no accelerator "hvf"`:     func(c *Config) { c.Accel = "hvf" },
		"at most 256":              func(c *Config) { c.MaxCPUs = 256 },
		"no multiple of 2 MiB":     func(c *Config) { c.MaxMemory = 2 * mebibyte },
		"0 processors":             func(c *Config) { c.CPUs = 0 },
		"no multiple of a MiB":     func(c *Config) { c.Memory++ },
		`"vmlinux" is no absolute`: func(c *Config) { c.Kernel = "vmlinux" },
		`"saved" is no absolute`:   func(c *Config) { c.Saved, c.Booted = "saved", never },
		"has no Booted":            func(c *Config) { c.Saved = "/s" },
		`the tag "a,b"`:            func(c *Config) { c.Shares[0].Tag = "a,b" },
		`the directory "/a,xattr"`: func(c *Config) { c.Shares[0].Dir = "/a,xattr" },
		`no cache mode "a"`:        func(c *Config) { c.Shares[0].Cache = "a" },
		`no number of seconds`:     func(c *Config) { c.Shares[0].Timeout = time.Millisecond },
		`there is no type "pc"`:    func(c *Config) { c.Type = "pc" },
		"network interfaces after": func(c *Config) { c.NICs = make([]NIC, 1) },
		"microvm cannot be saved":  func(c *Config) { c.Type, c.Saved, c.Booted = MicroVM, "/s", never },
		"gets no processors after": func(c *Config) { c.Type, c.MaxCPUs = MicroVM, 2 },
		"gets no memory after":     func(c *Config) { c.Type, c.MaxMemory = MicroVM, 3*mebibyte },
	} {
		c := Config{
			Kernel: "/k", Modules: "/m", Init: "/i", Dir: "/d", CPUs: 1, Memory: mebibyte, Accel: KVM,
			Children: new(proc.Children), Channel: os.Stdin, Console: os.Stdout, Shares: []Share{{Tag: "pod", Dir: "/a"}},
		}
		change(&c)
		err := c.check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("the error is %v, without %q", err, want)
		}
	}
}

// never is a Booted that is not called.
func never(context.Context) error { panic("called") }
