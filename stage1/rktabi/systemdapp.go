package rktabi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/appc"
)

// unitDir returns the directory of the drop-ins that stage 0 writes for an app's unit.
func unitDir(app string) string { return app + ".service.d" }

// accommodateApp writes a drop-in for an app's unit. It has the names of the app's streams,
// and replaces settings that rkt's images write in a form that systemd misreads. It is
// called before app/add, because app/add makes systemd load the units.
func (s *adapter) accommodateApp(a *mutableApp) error {
	if !s.hasSystemd() {
		return nil
	}
	k := a.made
	if err := checkUser(k.Spec.Process.User); err != nil {
		return s.Refused(err.Error(), errdefs.ErrNotImplemented)
	}
	lines, err := a.streams.open(s, k)
	if err != nil {
		return fmt.Errorf("streams of app %s: %w", k.Name, err)
	}
	if err := linkStreams(a.call.Request.Rootfs); err != nil {
		return fmt.Errorf("/dev of app %s: %w", k.Name, err)
	}
	command, err := commandLine(a.call.Request.Rootfs, k.Spec.Process)
	if err != nil {
		return err
	}
	lines = slices.Concat([]string{"[Service]"}, lines, environmentLines(k), command, []string{""})
	return s.Within(func() error {
		return putUnit(k.Dir, filepath.Join(unitDir(string(k.Name)), "stage0.conf"), strings.Join(lines, "\n"))
	})
}

// noUser is the invalid 16-bit user. systemd runs no unit as this user.
const noUser = 65535

// checkUser refuses users and groups that systemd refuses, such as the user of Kubernetes' pause
// image.
func checkUser(u specs.User) error {
	for _, field := range []struct {
		name string
		ids  []uint32
	}{{"uid", []uint32{u.UID}}, {"gid", []uint32{u.GID}}, {"additionalGids", u.AdditionalGids}} {
		if slices.Contains(field.ids, noUser) {
			return fmt.Errorf("/process/user/%s: systemd runs nothing as %d; a pod of Kubernetes is to have no pause container (sandboxer = \"shim\")", field.name, noUser)
		}
	}
	return nil
}

// forgetApp undoes accommodateApp. The caller has entered the pod's mount namespace.
func (s *adapter) forgetApp(k *immutable.Composition) error {
	if !s.hasSystemd() {
		return nil
	}
	return stage1.InTree(k.Dir, func(tree *os.Root) error { return tree.RemoveAll(filepath.Join(ownUnits, unitDir(string(k.Name)))) })
}

// linkStreams makes the links in /dev that programs write to, because rkt's images make
// only the other files there. It returns nil if the root file system is read-only.
func linkStreams(root string) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer r.Close()
	err = r.MkdirAll("dev", 0o755)
	for link, target := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		if err == nil || errors.Is(err, fs.ErrExist) {
			err = r.Symlink("/proc/self/fd"+target, "dev/"+link)
		}
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// environmentLines sets an app's environment in the unit in place of rkt's file, because
// systemd reads quotes and backslashes in that file as a shell would.
func environmentLines(k *immutable.Composition) []string {
	env := string(appc.Env(string(k.Name), &k.App.App))
	if !utf8.ValidString(env) {
		return nil // a unit file must be UTF-8
	}
	lines := []string{"EnvironmentFile="}
	for line := range strings.Lines(env) {
		lines = append(lines, "Environment="+quoteUnit(strings.TrimSuffix(line, "\n")))
	}
	return lines
}

// commandLine replaces an app's command line if it has a %. rkt does not escape the %, so
// systemd would expand it.
func commandLine(root string, p *specs.Process) ([]string, error) {
	if !strings.Contains(strings.Join(p.Args, ""), "%") {
		return nil, nil
	}
	program, err := immutable.FindProgram(root, p)
	if err != nil {
		return nil, err
	}
	words := []string{"ExecStart=" + quoteUnit(program)}
	for _, arg := range p.Args[1:] {
		if strings.Contains(arg, "\x00") {
			return nil, errors.New("an argument with a NUL")
		}
		words = append(words, strings.ReplaceAll(quoteUnit(arg), "$", "$$"))
	}
	return []string{"ExecStart=", strings.Join(words, " ")}, nil
}

// quoteUnit quotes a word for a unit file.
func quoteUnit(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '%':
			b.WriteString("%%")
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
