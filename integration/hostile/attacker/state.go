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

// state reports the rights of this process. The tests compare them with the spec. If /proc
// cannot be trusted, the variable PROC names another procfs.
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

// connect tries to connect to abstract sockets (CVE-2020-15257). A container without a
// network namespace of its own shares them with the host.
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

// listen listens on an abstract socket, for connect to find.
func listen(name string) {
	l, err := net.Listen("unix", "@"+name)
	must(err)
	defer l.Close()
	sleep()
}

// search makes the attack of an unprivileged user of the host: in a directory of the
// runtime it looks for set-id programs, and uses them to read the secret.
func (t target) search(dir string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // skip what cannot be read
		}
		if info, err := d.Info(); err != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) == 0 {
			return nil
		}
		c := exec.Command(path, "read")
		c.Stdout = os.Stdout
		_ = c.Run() // it prints its own loot
		return nil
	})
	must(err)
}
