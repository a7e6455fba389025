package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/inspection"
	"golang.org/x/sys/unix"
)

// inspect prints the properties of this process.
func inspect() {
	r := inspection.Report{Args: os.Args, Env: os.Environ(), UID: os.Getuid(), GID: os.Getgid(), PID: os.Getpid()}
	r.Groups, _ = os.Getgroups()
	sort.Ints(r.Groups)
	r.Cwd, _ = os.Getwd()
	r.Hostname, _ = os.Hostname()
	r.Status = status()
	r.FDs = descriptors()
	r.Mounts = mounts()
	r.Namespaces = map[string]string{}
	for _, n := range []string{"mnt", "pid", "net", "ipc", "uts", "user", "cgroup"} {
		r.Namespaces[n], _ = os.Readlink("/proc/self/ns/" + n)
	}
	for fd := range 3 {
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		r.Terminal[fd] = err == nil
	}
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	r.Kernel = strings.TrimSpace(string(b))
	b, _ = os.ReadFile("/proc/self/oom_score_adj")
	r.OOMScoreAdj = strings.TrimSpace(string(b))
	r.Session, _ = unix.Getsid(0)
	b, _ = os.ReadFile("/proc/self/cgroup")
	r.Cgroup = strings.Split(strings.TrimSpace(string(b)), "\n")
	r.Umask = unix.Umask(0)
	printJSON(r)
}

func status() map[string]string {
	out := map[string]string{}
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return out
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		k, v, ok := strings.Cut(s.Text(), ":")
		if ok {
			out[k] = strings.TrimSpace(v)
		}
	}
	return out
}

// descriptors lists the inherited descriptors. It leaves out the descriptor by which it
// reads /proc/self/fd. The Go runtime has none of its own here, because it opens an epoll
// instance and an eventfd only for pollable files.
func descriptors() map[string]string {
	out := map[string]string{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return out
	}
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(to, fmt.Sprintf("/proc/%d/fd", os.Getpid())) || strings.HasPrefix(to, "anon_inode:[event") {
			continue
		}
		out[e.Name()] = to
	}
	return out
}

func mounts() map[string]inspection.Mount {
	out := map[string]inspection.Mount{}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return out
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		m := inspection.Mount{Root: fields[3], Options: strings.Split(fields[5], ",")}
		i := 6
		for ; i < len(fields) && fields[i] != "-"; i++ {
			m.Propagation = append(m.Propagation, fields[i])
		}
		if i+2 < len(fields) {
			m.Type, m.Source = fields[i+1], fields[i+2]
		}
		out[fields[4]] = m
	}
	return out
}

// winsize prints the rows and columns of the terminal.
func winsize() {
	w, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	must(err)
	fmt.Println(w.Row, w.Col)
}

// winch prints the size of the terminal whenever it changes, until a line is entered.
func winch() {
	c := make(chan os.Signal, 16)
	signal.Notify(c, unix.SIGWINCH)
	fmt.Println("ready")
	entered := make(chan struct{})
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // the end of the input ends it, too
		close(entered)
	}()
	for {
		select {
		case <-c:
			winsize()
		case <-entered:
			return
		}
	}
}
