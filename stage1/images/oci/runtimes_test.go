package oci

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// An image has a list of OCI runtimes with their flags. The first runtime that is
// installed is used for all calls.
func TestTheImageNamesItsRuntimeAndFlagsForIt(t *testing.T) {
	argv := filepath.Join(t.TempDir(), "argv")
	real, err := exec.LookPath("runc")
	if err != nil {
		t.Skip("needs runc")
	}
	mine := filepath.Join(t.TempDir(), "mine")
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >>%s\nshift 2\nexec %s \"$@\"\n", argv, real)
	must(t, os.WriteFile(mine, []byte(script), 0o755))
	dir := imageDir(t)
	text := "# ours\n\nno-such-runtime --never\n" + mine + " --with flags\nrunc\n"
	must(t, os.WriteFile(filepath.Join(dir, "rootfs/runtimes"), []byte(text), 0o644))
	p := newPodOf(t, "", dir)
	p.run()
	a := p.app("web", nil, "true")
	a.start()
	a.ends(t, 0)
	p.expect(0, abi.AppRm, "web")
	b, err := os.ReadFile(argv)
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for i, verb := range []string{" create ", " start ", " delete "} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], "--with flags --root ") || !strings.Contains(lines[i], verb) {
			t.Errorf("call %d of %q, want%s", i, lines, verb)
		}
	}
}

// fakeCriu puts a script called criu into PATH.
func fakeCriu(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "criu"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// The client's settings of a checkpoint become options of the OCI runtime. A restore needs
// some of these options, too, and gets them although its client does not send them.
func TestOptionsOfACheckpointReachTheRuntimeAndTheRestore(t *testing.T) {
	argv := filepath.Join(t.TempDir(), "argv")
	fakeCriu(t, "exit 0")
	before(t, `case " $* " in *" checkpoint "* | *" restore "*) echo "$*" >>`+argv+`; exit 0 ;; esac`)
	p := startPod(t)
	a := p.app("web", nil, "sleep", "1000")
	a.start()
	dir := t.TempDir()
	for _, c := range []struct {
		asked abi.Checkpoint
		want  string
	}{
		{abi.Checkpoint{}, "--leave-running"},
		{abi.Checkpoint{Exit: true}, ""},
		{abi.Checkpoint{Exit: true, CgroupsMode: "soft"}, "--manage-cgroups-mode soft"},
		{abi.Checkpoint{Exit: true, EmptyNamespaces: []string{"network"}}, "--empty-ns network"},
		{abi.Checkpoint{EmptyNamespaces: []string{"network", "ipc"}}, "--empty-ns network --empty-ns ipc --leave-running"},
		{
			abi.Checkpoint{Exit: true, OpenTCP: true, ExternalUnixSockets: true, Terminal: true, FileLocks: true},
			"--tcp-established --ext-unix-sk --shell-job --file-locks",
		},
	} {
		_ = os.Remove(argv)
		c.asked.Path = dir
		call := p.call(abi.AppCheckpoint, "web")
		call.Request.Checkpoint = &c.asked
		must(t, p.Invoke(p.patience, call))
		b, err := os.ReadFile(argv)
		must(t, err)
		_, got, _ := strings.Cut(strings.TrimSuffix(string(b), " "+container("web")+"\n"), "--image-path "+dir)
		if strings.TrimSpace(got) != c.want {
			t.Errorf("%+v: the runtime was called with %q, want %q", c.asked, got, c.want)
		}
	}
	_ = os.Remove(argv)
	next := p.app("next", nil, "true")
	next.call.Request.Checkpoint = &abi.Checkpoint{Path: dir}
	expectCode(t, "app/add", 1, next.tryAdd(p.patience)) // nothing was restored
	b, err := os.ReadFile(argv)
	if err != nil || !strings.Contains(string(b), " restore ") || !strings.Contains(string(b), "--image-path "+dir+" --tcp-established --ext-unix-sk --shell-job --file-locks --bundle ") {
		t.Errorf("restored with %q, %v", b, err)
	}
	p.expect(0, abi.AppRm, "next")
	p.expect(0, abi.AppStop, "web")
	a.ends(t, 137)
	p.expect(0, abi.AppRm, "web")
}

// A stranger may have made the checkpoint, so its file gives the OCI runtime only options that a
// checkpoint notes.
func TestACheckpointGivesTheRuntimeNoOtherOptions(t *testing.T) {
	called := filepath.Join(t.TempDir(), "called")
	fakeCriu(t, "exit 0")
	before(t, `case " $* " in *" restore "*) echo "$*" >`+called+`; exit 0 ;; esac`)
	p := startPod(t)
	write := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, c := range map[string]struct {
		make  func(path string) error
		words string
	}{
		"an option":         {write("--tcp-established --lsm-profile apparmor:unconfined\n"), "--lsm-profile"},
		"an option's value": {write("--work-path=/etc"), "--work-path=/etc"},
		"a glob":            {write("*"), "'*'"},
		"an argument":       {write("other"), "other"},
		"a long text":       {write(strings.Repeat("--file-locks ", 200)), "1024 bytes"},
		"a fifo":            {func(path string) error { return unix.Mkfifo(path, 0o600) }, "no regular file"},
		"a directory":       {func(path string) error { return os.Mkdir(path, 0o700) }, "no regular file"},
		"a link": {func(path string) error {
			return errors.Join(write("--file-locks")(path+".real"), os.Symlink("rkt-oci.real", path))
		}, "no regular file"},
		"a broken link": {func(path string) error { return os.Symlink("absent", path) }, "no regular file"},
	} {
		dir := t.TempDir()
		must(t, c.make(filepath.Join(dir, "rkt-oci")))
		a := p.app("web", nil, "true")
		a.call.Request.Checkpoint = &abi.Checkpoint{Path: dir}
		if text := expectCode(t, name, 1, a.tryAdd(p.patience)); !strings.Contains(text, c.words) {
			t.Errorf("%s: error %q, want %q", name, text, c.words)
		}
		if b, err := os.ReadFile(called); err == nil {
			t.Errorf("%s: the runtime was called with %s", name, b)
			must(t, os.Remove(called))
		}
		if left := p.apps(); len(left) > 0 {
			t.Errorf("%s: state of %v is left", name, left)
			p.expect(0, abi.AppRm, "web")
		}
		must(t, a.group.Remove(p.patience))
	}
}

func TestWithoutCriuACheckpointIsRefusedWithTheReason(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"none":                 {"", "there is no criu"},
		"one that cannot work": {"echo 'Warn: x'; echo 'Error (vdso): no such area'; exit 1", "criu does not work here: Error (vdso): no such area"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.script != "" {
				fakeCriu(t, c.script)
			} else if _, err := exec.LookPath("criu"); err == nil {
				t.Skip("there is a criu here")
			}
			p := startPod(t)
			a := p.app("web", nil, "sleep", "1000")
			a.start()
			call := p.call(abi.AppCheckpoint, "web")
			call.Request.Checkpoint = &abi.Checkpoint{Path: t.TempDir()}
			if text := expectCode(t, "app/checkpoint", 7, p.Invoke(p.patience, call)); !strings.Contains(text, c.want) {
				t.Errorf("words %q, want %q", text, c.want)
			}
			next := p.app("next", nil, "true")
			next.call.Request.Checkpoint = &abi.Checkpoint{Path: t.TempDir()}
			expectCode(t, "app/add of a checkpoint", 7, next.tryAdd(p.patience))
			p.expect(0, abi.AppStop, "web")
			a.ends(t, 137)
			p.expect(0, abi.AppRm, "web")
		})
	}
}

func TestACrunThatIsBuiltWithoutCriuMakesNoCheckpoint(t *testing.T) {
	dir := t.TempDir()
	crun := filepath.Join(dir, "crun")
	must(t, os.WriteFile(crun, []byte("#!/bin/sh\necho 'crun version 1.8.1'\necho '+SYSTEMD +SECCOMP +YAJL'\n"), 0o755))
	image := imageDir(t)
	must(t, os.WriteFile(filepath.Join(image, "rootfs/runtimes"), []byte(crun+"\n"), 0o644))
	fakeCriu(t, "exit 0")
	p := newPodOf(t, "", image)
	p.run()
	a := p.app("web", nil, "true")
	a.call.Request.Checkpoint = &abi.Checkpoint{Path: t.TempDir()}
	if text := expectCode(t, "app/add of a checkpoint", 7, a.tryAdd(p.patience)); text != crun+" is built without criu" {
		t.Errorf("words %q", text)
	}
}

// criu's error is in the error of the call, and its log is where clients look for it.
func TestWhatCriuSaysIsTold(t *testing.T) {
	fakeCriu(t, "exit 0")
	before(t, `case " $* " in *" checkpoint "*)
	dir=$(echo "$*" | sed 's/.*--work-path \([^ ]*\).*/\1/')
	printf '(00.01) fine\n(00.02) Error (tty.c:1): a terminal is in the way\n' >"$dir/dump.log"
	exit 1 ;;
esac`)
	p := startPod(t)
	a := p.app("web", nil, "sleep", "1000")
	a.start()
	call := p.call(abi.AppCheckpoint, "web")
	call.Request.Bundle = a.call.Request.Bundle
	call.Request.Checkpoint = &abi.Checkpoint{Path: t.TempDir()}
	if text := expectCode(t, "app/checkpoint", 1, p.Invoke(p.patience, call)); !strings.Contains(text, "a terminal is in the way") {
		t.Errorf("words %q", text)
	}
	if b, err := os.ReadFile(filepath.Join(a.call.Request.Bundle, "criu-dump.log")); err != nil || !strings.Contains(string(b), "(00.01) fine") {
		t.Errorf("%q, %v", b, err)
	}
	p.expect(0, abi.AppStop, "web")
	a.ends(t, 137)
	p.expect(0, abi.AppRm, "web")
}
