package doctor

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// needs are the programs that the bundled images execute, by the names of the images. One
// of each list is enough. An image with features/probe says by itself what it lacks.
var needs = map[string][]string{
	"coreos.com/rkt/stage1-nspawn": {"systemd-nspawn"},
}

// machines is the name of the image whose pods are virtual machines. Its features/probe says what these lack.
const machines = "coreos.com/rkt/stage1-kvm"

// lacks returns what a failed features/probe has said, in one line.
func lacks(probe error) string {
	text := probe.Error()
	if _, said, ok := strings.Cut(text, string(abi.FeaturesProbe)+": "); ok {
		text = said
	}
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}

// stage1s checks what the stage1s need on this node.
func (e *examination) stage1s() {
	const area = "stage1"
	if len(e.Stage1s) == 0 {
		e.found(Error, area, "make install, or install the package", "this node has no stage1")
	}
	for _, s := range e.Stage1s {
		severity := Note
		if s.InUse {
			severity = Error
		}
		before := len(e.findings)
		switch {
		case s.Problem != nil:
			e.found(severity, area, "rktctl config check, and rktctl stage1 verify on the image", "%s: %v", s.Name, s.Problem)
		case s.Probe != nil && s.AppcName == machines:
			e.found(severity, area, "install what it names, or change /etc/containerd-shim-rkt/kvm.json (docs/stage1-kvm.md, Settings)", "%s cannot boot machines on this node: %s", s.Name, lacks(s.Probe))
		case s.Probe != nil:
			e.found(severity, area, "install what it names into containerd's PATH, then rktctl stage1 show "+s.Name, "%s cannot find out what it honours on this node: %v", s.Name, s.Probe)
		}
		if programs := needs[s.AppcName]; len(programs) > 0 && !slices.ContainsFunc(programs, e.isThere) {
			e.found(severity, area, "install "+strings.Join(programs, " or ")+" (Debian: systemd-container)", "%s needs %s in containerd's PATH", s.Name, strings.Join(programs, " or "))
		}
		for _, p := range e.missingInterpreters(s) {
			e.found(severity, area, "install "+p, "%s: its entrypoints are executed by %s, which does not exist", s.Name, p)
		}
		if len(e.findings) == before {
			e.ok(area, "%s", s.Name)
		}
	}
}

func (e *examination) isThere(program string) bool {
	path, err := e.lookPath(program)
	return path != "" && err == nil
}

// missingInterpreters returns the programs in the first lines of entrypoints that the node
// does not have. An entrypoint is executed in the node's own file tree.
func (e *examination) missingInterpreters(s Stage1) []string {
	var missing []string
	if s.Rootfs == "" {
		return nil
	}
	root, err := os.OpenRoot(s.Rootfs)
	if err != nil {
		return nil
	}
	defer root.Close()
	for _, p := range s.Programs {
		f, err := root.Open(strings.TrimPrefix(p, "/"))
		if err != nil {
			continue
		}
		line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
		_ = f.Close()
		words := strings.Fields(strings.TrimPrefix(line, "#!"))
		if !strings.HasPrefix(line, "#!") || len(words) == 0 {
			continue
		}
		interpreter := words[0]
		if _, err := os.Stat(interpreter); err == nil && filepath.Base(interpreter) == "env" && len(words) > 1 {
			if interpreter = words[len(words)-1]; e.isThere(interpreter) {
				continue
			}
		} else if err == nil {
			continue
		}
		if !slices.Contains(missing, interpreter) {
			missing = append(missing, interpreter)
		}
	}
	return missing
}
