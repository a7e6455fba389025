package main

import (
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// state tells what this process was given: the tests know what it should have. Where
// /proc is not to be trusted, the variable PROC says where another one is.
func state() {
	proc := os.Getenv("PROC")
	if proc == "" {
		proc = "/proc"
	}
	s := loot.State{Status: status(proc + "/self/status"), UID: os.Getuid(), GID: os.Getgid()}
	for file, to := range map[string]*string{"/self/oom_score_adj": &s.OOM, "/1/oom_score_adj": &s.FirstOOM} {
		b, _ := os.ReadFile(proc + file)
		*to = strings.TrimSpace(string(b))
	}
	loot.Say(os.Stdout, s)
}

// connect looks for abstract sockets, which a container without a network namespace of
// its own shares with the host: the class of CVE-2020-15257.
func connect() {
	b, err := os.ReadFile("/proc/net/unix")
	must(err)
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.HasPrefix(fields[7], "@") {
			continue
		}
		c, err := net.Dial("unix", fields[7])
		if err == nil {
			_ = c.Close()
			got(loot.Socket, "%s", fields[7])
		}
	}
}

// search is what somebody without rights does on the host: in a directory of the
// runtime's it looks for programs that would run as somebody else, and lets them read
// the secret.
func (t target) search(dir string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // what cannot be read is not what is sought
		}
		if info, err := d.Info(); err != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) == 0 {
			return nil
		}
		c := exec.Command(path, "read")
		c.Stdout = os.Stdout
		_ = c.Run() // it says what it got
		return nil
	})
	must(err)
}
