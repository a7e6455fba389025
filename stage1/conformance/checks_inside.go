package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// insideChecks check pods of the Sandbox service by what the programs of their apps see. So they also
// hold for a stage1 that owns its namespaces, which nothing on the host shows.
func insideChecks() []Check {
	return []Check{
		sandboxCheck("sandbox/inside", "the apps of a pod, and their execs, see its hostname and its kernel settings, and share its IPC, UTS and network namespaces", checkInsideSandbox),
		sandboxCheck("sandbox/pids", "apps that join the PID namespace of a pod see each other's processes, and no other app does", checkPIDsOfSandbox),
	}
}

// settings are the sysctls of a sandbox, if the stage1 has sysctls.
func (t *trial) settings() map[string]string {
	all := map[string]string{t.values.sysctl: t.values.sysctlValue}
	if !t.honours(&specs.Spec{Linux: &specs.Linux{Sysctl: all}}) {
		return nil
	}
	return all
}

// neighbour starts an app that joins the sandbox. Its program listens on a socket of its network
// namespace, answers questions and waits.
func (b *sandbox) neighbour(ctx context.Context, join func(*specs.Spec), questions ...string) (*wholeApp, map[string]string) {
	a := must(b.start(ctx, join, append([]string{"linger", "listen " + b.t.values.metadata}, questions...)...))
	return a, must(a.streams.answers(ctx))
}

func checkInsideSandbox(ctx context.Context, b *sandbox) error {
	v := b.t.values
	facts := []fact{is("file /proc/sys/kernel/hostname", v.sandboxName), is("dial "+v.metadata, "connected")}
	for name := range b.t.settings() {
		facts = append(facts, is("file "+sysctlFile(name), v.sysctlValue))
	}
	questions := (&honoured{facts: facts}).verb()[1:]
	for _, ns := range shared() {
		questions = append(questions, "namespace "+ns)
	}
	first, of := b.neighbour(ctx, b.join, questions...)
	for _, ns := range shared() { // an equal number in another machine is another namespace
		facts = append(facts, is("namespace "+ns, of["namespace "+ns]))
	}
	sees := func(who string, answers map[string]string) error {
		for _, f := range facts {
			if got := answers[f.question]; !f.holds(got) {
				return fmt.Errorf("%s of the pod is not in its namespaces: %s is %q, want %s", who, f.question, got, f.want)
			}
		}
		return nil
	}
	verb := append([]string{"observe"}, questions...)
	second := must(b.start(ctx, b.join, verb...))
	err := errors.Join(sees("an app", of), sees("a second app", must(second.streams.answers(ctx))))
	if err == nil && b.t.image.Has(abi.Enter) {
		exec := must(first.exec(ctx, "exec", nil, verb...))
		err = sees("an exec", must(exec.answers(ctx)))
	}
	return err
}

func checkPIDsOfSandbox(ctx context.Context, b *sandbox) error {
	word := b.t.values.metadata
	joinAll := func(s *specs.Spec) {
		b.join(s)
		for i, n := range s.Linux.Namespaces {
			if n.Type == specs.PIDNamespace {
				s.Linux.Namespaces[i].Path = fmt.Sprintf("/proc/%d/ns/pid", b.holder)
			}
		}
	}
	b.neighbour(ctx, joinAll)
	for _, other := range []struct {
		join func(*specs.Spec)
		want string
	}{{joinAll, "yes"}, {b.join, "no"}} {
		a := must(b.start(ctx, other.join, "observe", "sees "+word))
		if got := must(a.streams.answers(ctx))["sees "+word]; got != other.want {
			return fmt.Errorf("whether an app sees the processes of another: %q, want %s", got, other.want)
		}
	}
	return nil
}

// listen listens on an abstract socket, which belongs to the network namespace.
func listen(name string) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return "", err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + name}); err == nil {
		err = unix.Listen(fd, 8)
	}
	return "listening", err // until the program ends
}

// dial connects to an abstract socket.
func dial(name string) (string, error) {
	c, err := net.Dial("unix", "@"+name)
	if err != nil {
		return "", err
	}
	return "connected", c.Close()
}

// sees returns yes if /proc has another process with a word in its arguments, and otherwise no.
func sees(word string) (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		text, _ := os.ReadFile(f)
		if bytes.Contains(text, []byte(word)) && filepath.Dir(f) != "/proc/"+strconv.Itoa(os.Getpid()) {
			return "yes", nil
		}
	}
	return "no", err
}
