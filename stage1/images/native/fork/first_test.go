package fork

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// beginFirst begins the first process of an app in new namespaces, with its output and errors in a pipe.
func beginFirst(t *testing.T, change func(*Program)) (b *Begun, output *os.File) {
	t.Helper()
	p := sleeper(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p.Exe, p.Args, p.Files = nil, nil, []*os.File{null, w, w}
	p.New = unix.CLONE_NEWPID | unix.CLONE_NEWNS
	p.Program = &Program{
		First: &First{Procfs: 1}, Dir: "/", Paths: []string{busybox}, Umask: 0o022,
		Capabilities: Capabilities{Bounding: ^uint64(0), Permitted: ^uint64(0), Effective: ^uint64(0)},
	}
	change(p.Program)
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	t.Cleanup(cancel)
	if b, err = Begin(ctx, p); err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(ctx, func() { _ = unix.Kill(b.PID, unix.SIGKILL) })
	t.Cleanup(b.Close)
	return b, r
}

func await(t *testing.T, b *Begun) []*os.File {
	t.Helper()
	opened, err := b.Await()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range opened {
		t.Cleanup(func() { f.Close() })
	}
	return opened
}

func TestAFirstProcessWaitsForItsRootAndForItsStart(t *testing.T) {
	b, output := beginFirst(t, func(g *Program) { script(g, "echo $$; busybox stat -Lc %n /proc/self/fd/0") })
	opened := await(t, b)
	if len(opened) != 1 {
		t.Fatalf("it has handed over %d procfs", len(opened))
	}
	// The mount shows the processes of the process's PID namespace, although this process makes it.
	fs := int(opened[0].Fd())
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mount := os.NewFile(uintptr(fd), "procfs")
	defer mount.Close()
	dir, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	listed := os.NewFile(uintptr(dir), "procfs")
	defer listed.Close()
	names, err := listed.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil {
			pids = append(pids, name)
		}
	}
	if len(pids) != 1 || pids[0] != "1" {
		t.Errorf("its procfs has the processes %v", pids)
	}
	b.Go()
	if opened := await(t, b); len(opened) != 0 {
		t.Errorf("it has handed over %d files before its start", len(opened))
	}
	b.Go()
	if _, err := b.Executed(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(output)
	if ws := reap(b.PID); err != nil || ws.ExitStatus() != 0 || !strings.HasPrefix(string(text), "1\n") {
		t.Errorf("%q, exit status %d, %v", text, ws.ExitStatus(), err)
	}
}

// A program that cannot be executed ends the process with the exit code that a shell would have, which
// clients see as that of the app.
func TestAFirstProcessThatCannotExecuteItsProgramHasTheExitCodeOfAShell(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	script := filepath.Join(t.TempDir(), "script")
	for file, content := range map[string]string{text: "no program", script: "#!/absent\n"} {
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]struct {
		code  int
		error string
	}{
		text:   {126, "exec " + text + ": exec format error"},
		script: {127, "exec " + script + ": no such file or directory"},
	} {
		b, _ := beginFirst(t, func(g *Program) { g.Paths = []string{"/absent", path}; g.Args = []string{"x"} })
		await(t, b)
		b.Go()
		await(t, b)
		b.Go()
		_, err := b.Executed()
		if failed := (*Error)(nil); !errors.As(err, &failed) || failed.Error() != want.error {
			t.Errorf("error %v, want %s", err, want.error)
		}
		if ws := reap(b.PID); ws.ExitStatus() != want.code {
			t.Errorf("%s: exit status %d, want %d", path, ws.ExitStatus(), want.code)
		}
	}
}

// A step that fails before the process is ready, and the end of the parent, end it.
func TestAFirstProcessThatIsGivenUpEnds(t *testing.T) {
	b, _ := beginFirst(t, func(g *Program) { g.Paths = []string{"/absent"} })
	await(t, b)
	b.Go()
	_, err := b.Await()
	if failed := (*Error)(nil); !errors.As(err, &failed) || failed.Errno != unix.ENOENT {
		t.Errorf("error %v", err)
	}
	reap(b.PID)

	b, _ = beginFirst(t, func(g *Program) { script(g, "true") })
	await(t, b)
	b.Close()
	if ws := reap(b.PID); ws.ExitStatus() != 1 {
		t.Errorf("exit status %d after the parent has gone", ws.ExitStatus())
	}
}
