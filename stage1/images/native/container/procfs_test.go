package container

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const procfsEnv = "TEST_CONTAINER_PROCFS"

// fakes are changes that an app may have made to its /proc before an exec writes
// there. They are made in the exec's mount namespace. dir is a directory for their
// files.
func fakes() map[string]func(dir string) error {
	self, thread := fmt.Sprint("/proc/", os.Getpid()), fmt.Sprintf("/proc/%d/task/%d", os.Getpid(), unix.Gettid())
	parent := fmt.Sprint("/proc/", os.Getppid())
	bind := func(source, target string) error { return unix.Mount(source, target, "", unix.MS_BIND, "") }
	files := func(dir string) error {
		return errors.Join(os.WriteFile(dir+"/oom_score_adj", nil, 0o644), os.WriteFile(dir+"/comm", nil, 0o644),
			os.Mkdir(dir+"/attr", 0o755), os.WriteFile(dir+"/attr/exec", nil, 0o644))
	}
	return map[string]func(dir string) error{
		"nothing": func(string) error { return nil },
		"files over those of the process": func(dir string) error {
			return errors.Join(files(dir), bind(dir+"/oom_score_adj", self+"/oom_score_adj"),
				bind(dir+"/comm", thread+"/comm"), bind(dir+"/attr/exec", thread+"/attr/exec"))
		},
		"files of another process over those of the process": func(string) error {
			return errors.Join(bind(parent+"/oom_score_adj", self+"/oom_score_adj"),
				bind(parent+"/comm", thread+"/comm"), bind(parent+"/attr/exec", thread+"/attr/exec"))
		},
		"a directory over that of the process": func(dir string) error {
			return errors.Join(files(dir), bind(dir, self), bind(dir, self))
		},
		"a tmpfs with files": func(string) error {
			if err := unix.Mount("tmpfs", "/proc", "tmpfs", 0, ""); err != nil {
				return err
			}
			return errors.Join(os.Mkdir("/proc/self", 0o755), files("/proc/self"), os.Symlink("self", "/proc/thread-self"))
		},
		"a directory of another process": func(string) error { return bind(parent, "/proc") },
		"a link": func(dir string) error {
			// Nothing can be unmounted from the root of the host's tree, so use another
			// root.
			return errors.Join(unix.Mount("tmpfs", dir, "tmpfs", 0, ""), unix.Chdir(dir), os.Mkdir("other", 0o755),
				os.Symlink("other", "proc"), files("other"), unix.Chroot("."))
		},
	}
}

// writeToProc runs in the test binary, in a mount namespace of its own, and makes the
// writes to procfs that an exec makes. It writes a name in place of the label, because a
// name needs no LSM. It prints errors, and waits until the test has checked the files.
func writeToProc(fake, dir string) {
	err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
	if err = errors.Join(err, fakes()[fake](dir)); err != nil {
		fmt.Printf("cannot prepare: %v\n", err)
		return
	}
	score := 321
	if err := adjustOOM("self", &score); err != nil {
		fmt.Println("score:", err)
	}
	proc, err := openProcfs()
	if err == nil {
		err = proc.write("thread-self/comm", "written")
	}
	if err != nil {
		fmt.Println("name:", err)
	}
	if attr, err := openAttr("apparmor/exec", "exec"); err != nil {
		fmt.Println("label:", err)
	} else if err := checkProcfsFile(attr); err != nil {
		fmt.Println("label written elsewhere:", err)
	}
	fmt.Println("thread", unix.Gettid())
	os.Stdin.Read(make([]byte, 1))
}

// checkProcfsFile returns an error if a file is not of a procfs.
func checkProcfsFile(fd int) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("%v, type %x", err, st.Type)
	}
	return nil
}

func TestWhatAnExecWritesToProcfsIsItsOwnOrRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes mounts")
	}
	read := func(pid int, name string) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		must(t, err)
		return strings.TrimSpace(string(b))
	}
	score, name := read(os.Getpid(), "oom_score_adj"), read(os.Getpid(), "comm")
	for fake := range fakes() {
		t.Run(fake, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), procfsEnv+"="+fake, "TEST_DIRECTORY="+dir)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
			cmd.Stderr = os.Stderr
			stdin, err := cmd.StdinPipe()
			must(t, err)
			stdout, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			failed := make(map[string]string)
			thread := 0
			for lines := bufio.NewScanner(stdout); thread == 0 && lines.Scan(); {
				if _, err := fmt.Sscanf(lines.Text(), "thread %d", &thread); err != nil {
					what, why, _ := strings.Cut(lines.Text(), ": ")
					failed[what] = why
				}
			}
			if thread == 0 {
				t.Fatalf("the process has written nothing: %v", failed)
			}
			t.Logf("refused: %v", failed)
			checkWritten(t, "score", failed, read(cmd.Process.Pid, "oom_score_adj"), "321")
			checkWritten(t, "name", failed, read(cmd.Process.Pid, fmt.Sprintf("task/%d/comm", thread)), "written")
			if why, ok := failed["label written elsewhere"]; ok {
				t.Error("label written elsewhere: ", why)
			}
			if fake == "nothing" && len(failed) > 0 {
				t.Errorf("refused: %v", failed)
			}
			if s, n := read(os.Getpid(), "oom_score_adj"), read(os.Getpid(), "comm"); s != score || n != name {
				t.Errorf("this process has score %s and name %s now, had %s and %s", s, n, score, name)
			}
			stdin.Close()
			must(t, cmd.Wait())
			filepath.WalkDir(dir, func(p string, _ os.DirEntry, _ error) error {
				if b, err := os.ReadFile(p); err == nil && len(b) > 0 {
					t.Errorf("%s: %q was written to it", p, b)
				}
				return nil
			})
		})
	}
}

// checkWritten reports an error if a value was neither written nor refused.
func checkWritten(t *testing.T, what string, failed map[string]string, got, want string) {
	t.Helper()
	if _, refused := failed[what]; !refused && got != want {
		t.Errorf("%s: it is said to be written, and is %q, want %q", what, got, want)
	}
}
