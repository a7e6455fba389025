package container

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// sharedVolume is a directory of the host that the app has at /vol and that
// another container may change at any time: the attacker.
type sharedVolume struct {
	t      *testing.T
	dir    string
	secret string // a file of the host's, 0600
	swaps  int
}

func newSharedVolume(t *testing.T) *sharedVolume {
	t.Helper()
	v := &sharedVolume{t: t, dir: t.TempDir(), secret: filepath.Join(t.TempDir(), "secret")}
	must(t, os.WriteFile(v.secret, []byte("of the host"), 0o600))
	for _, d := range []string{"x", "y"} {
		must(t, os.Mkdir(filepath.Join(v.dir, d), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(v.dir, "x/f"), []byte("copied"), 0o755))
	must(t, os.Chmod(filepath.Join(v.dir, "x/f"), 0o777|os.ModeSetuid))
	must(t, os.Chown(filepath.Join(v.dir, "x/f"), 12, 13))
	must(t, os.Chmod(filepath.Join(v.dir, "x/f"), 0o777|os.ModeSetuid))
	return v
}

// exchange gives x the name y and y the name x.
func (v *sharedVolume) exchange() {
	v.swaps++
	x, y := filepath.Join(v.dir, "x"), filepath.Join(v.dir, "y")
	if err := unix.Renameat2(unix.AT_FDCWD, x, unix.AT_FDCWD, y, unix.RENAME_EXCHANGE); err != nil {
		v.t.Errorf("exchange x and y: %v", err)
	}
}

// plant puts links to the host's file in the place of all copies in the volume.
func (v *sharedVolume) plant() {
	for _, d := range []string{"x", "y"} {
		copied := filepath.Join(v.dir, d, "f")
		if info, err := os.Lstat(copied); err == nil && info.Mode().IsRegular() {
			os.Remove(copied)
			os.Symlink(v.secret, copied)
		}
	}
}

func (v *sharedVolume) checkSecret() {
	v.t.Helper()
	var st unix.Stat_t
	must(v.t, unix.Stat(v.secret, &st))
	if st.Mode&0o7777 != 0o600 || st.Uid != 0 {
		v.t.Errorf("the host's file now has mode %04o and owner %d", st.Mode&0o7777, st.Uid)
	}
}

// attack exchanges the volume's directories at one moment. If n is 1, that is before
// Init attaches the mount that it has made for /vol/x, otherwise before it opens
// /vol/x for the n-th time. attack makes links before every change of a mode or an
// owner.
func (v *sharedVolume) attack(n int) *adversary {
	opened := 0
	return &adversary{
		calls: []int{unix.SYS_OPENAT2, unix.SYS_MOVE_MOUNT, unix.SYS_FCHMODAT, unix.SYS_FCHMOD, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT},
		act: func(s *stopped) {
			switch {
			case s.nr == unix.SYS_OPENAT2:
				if s.path(1) != "/vol/x" {
					return
				}
				if opened++; opened == n && n > 1 {
					v.exchange()
				}
			case opened == 0:
			case s.nr == unix.SYS_MOVE_MOUNT:
				if n == 1 && v.swaps == 0 {
					v.exchange()
				}
			default:
				v.plant()
			}
		},
	}
}

// moments are the values of n for attack: more than the number of destinations that Init
// opens.
const moments = 4

// attacks are the moments, first in Init, and then in a Builder.
const attacks = 2 * moments

// under makes an app be made while its volume is attacked.
func (b *box) under(v *sharedVolume, attack int) {
	b.once, b.planned = true, attack >= moments
	b.enemy = v.attack(attack%moments + 1)
}

// attacked is one app that was created while its volume was attacked.
func attacked(t *testing.T, n int, script string, mounts ...specs.Mount) (*sharedVolume, *result) {
	t.Helper()
	v := newSharedVolume(t)
	b := newBox(t).sh(script).mount(append([]specs.Mount{bindOf(v.dir, "/vol")}, mounts...)...)
	must(t, os.Symlink("busybox", filepath.Join(b.rootfs, "bin/find")))
	b.under(v, n)
	r := b.run()
	v.checkSecret()
	if r.failure != nil || r.code != 0 {
		t.Errorf("moment %d: the app is not there: %+v, output:\n%s", n, r.failure, r.output)
	}
	return v, r
}

func TestCopyingUpIntoAVolumeThatIsRenamedChangesNothingOfTheHosts(t *testing.T) {
	swaps := 0
	for n := range moments {
		v, r := attacked(t, n, "find /vol -type f -name f -exec stat -c '%a %u %F' {} +",
			specs.Mount{Destination: "/vol/x", Type: "tmpfs", Source: "tmpfs", Options: []string{"tmpcopyup"}})
		contains(t, r.output, "4777 12 regular file") // the copy, on the tmpfs
		swaps += v.swaps
	}
	if swaps == 0 {
		t.Error("the attacker has exchanged nothing: this test shows nothing")
	}
}

func TestWhatIsRemovedWhileItIsCopiedUpIsNotMissed(t *testing.T) {
	v := newSharedVolume(t)
	must(t, os.WriteFile(filepath.Join(v.dir, "x/stays"), nil, 0o644))
	b := newBox(t).sh("ls /vol/x").mount(bindOf(v.dir, "/vol"),
		specs.Mount{Destination: "/vol/x", Type: "tmpfs", Source: "", Options: []string{"tmpcopyup"}})
	removed := false
	b.once = true
	b.enemy = &adversary{calls: []int{unix.SYS_OPENAT}, act: func(s *stopped) {
		if s.path(1) == "f" && !removed {
			removed = true
			if err := os.Remove(filepath.Join(v.dir, "x/f")); err != nil {
				t.Error(err)
			}
		}
	}}
	if got := b.ok(); got != "stays\n" || !removed {
		t.Errorf("copied: %q; removed meanwhile: %v", got, removed)
	}
}

func TestOptionsOfAMountInAVolumeThatIsRenamedAreThatMounts(t *testing.T) {
	for option, want := range map[string]string{"ro": " ro,", "shared": " shared:", "rnosuid": ",nosuid"} {
		swaps := 0
		for n := range attacks {
			v, r := attacked(t, n, "cat /proc/self/mountinfo",
				specs.Mount{Destination: "/vol/x", Type: "tmpfs", Source: "attacked", Options: []string{option}})
			contains(t, lineWith(r.output, " attacked "), want)
			swaps += v.swaps
		}
		if swaps == 0 {
			t.Error("the attacker has exchanged nothing: this test shows nothing")
		}
	}
}

func lineWith(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			return line
		}
	}
	return ""
}

func TestARemountChangesTheMountOfTheEarlierEntryOnly(t *testing.T) {
	for n := range attacks {
		v := newSharedVolume(t)
		must(t, os.RemoveAll(filepath.Join(v.dir, "y")))
		must(t, os.Symlink("/guarded", filepath.Join(v.dir, "y")))
		b := newBox(t).sh("cat /proc/self/mountinfo").mount(
			bindOf(t.TempDir(), "/guarded", "ro"),
			bindOf(v.dir, "/vol"),
			specs.Mount{Destination: "/vol/x", Type: "tmpfs", Source: "attacked"},
			specs.Mount{Destination: "/vol/x", Type: "none", Options: []string{"remount", "bind", "rw", "nosuid"}})
		b.under(v, n)
		r := b.run()
		if r.failure != nil {
			t.Fatalf("moment %d: init failed: %s", n, r.failure.Text)
		}
		contains(t, lineOf(t, r.output, "/guarded"), " ro,")
		contains(t, lineWith(r.output, " attacked "), " rw,nosuid,")
	}
}

// hostPID puts the app into the host's PID namespace, and a link to the host's files
// into its image.
func (b *box) hostPID() *box {
	b.spec.Linux.Namespaces = slices.DeleteFunc(b.spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool {
		return n.Type == specs.PIDNamespace
	})
	must(b.t, os.Symlink(fmt.Sprintf("/proc/%d/root", os.Getpid()), filepath.Join(b.rootfs, "host")))
	return b
}

func TestAWorkingDirectoryIsNotMadeOnTheHost(t *testing.T) {
	dir := t.TempDir()
	for _, cwd := range []string{"/host" + dir + "/made", "/link/made", "/host" + dir} {
		b := newBox(t).sh("true").hostPID()
		must(t, os.Symlink("host"+dir, filepath.Join(b.rootfs, "link")))
		b.spec.Process.Cwd = cwd
		contains(t, b.fails(), "chdir to cwd ("+strconv.Quote(cwd)+") set in config.json failed: it leads through links of /proc")
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("made on the host for %s: %v %v", cwd, entries, err)
		}
	}
	b := newBox(t).sh("pwd")
	must(t, os.Symlink("../made/of/it", filepath.Join(b.rootfs, "etc/dangling")))
	b.spec.Process.Cwd = "/etc/dangling/below"
	if got := b.ok(); got != "/made/of/it/below\n" {
		t.Errorf("a working directory that is a link of the image: %q", got)
	}
}

func TestHOMEIsNotReadFromTheHost(t *testing.T) {
	passwd := filepath.Join(t.TempDir(), "passwd")
	must(t, os.WriteFile(passwd, []byte("root:x:0:0::/of/the/host:/bin/sh\n"), 0o644))
	b := newBox(t).sh("echo $HOME").hostPID()
	must(t, os.Remove(filepath.Join(b.rootfs, "etc/passwd")))
	must(t, os.Symlink("/host"+passwd, filepath.Join(b.rootfs, "etc/passwd")))
	if got := b.ok(); got != "/\n" {
		t.Errorf("HOME is %q", got)
	}
}
