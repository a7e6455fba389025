package documents

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// A page takes seconds.
var patience = time.Minute * wait.Slowness

// document is a document, or a section of one, whose commands are executed.
type document struct {
	path    string
	section string
	needs   string // a program without which the page is skipped
	notRun  int    // blocks that cannot be executed
}

func documents() []document {
	return []document{
		{path: "README.md", notRun: 2},
		{path: "docs/annotations.md"},
		{path: "docs/clients.md", section: "ctr"},
		{path: "docs/clients.md", section: "nerdctl", needs: "nerdctl"},
		{path: "docs/clients.md", section: "Docker", notRun: 1},
		{path: "docs/clients.md", section: "BuildKit", notRun: 1},
		{path: "docs/config.md", notRun: 2},
		{path: "docs/getting-started.md", notRun: 1},
		{path: "docs/images.md", notRun: 1},
		{path: "docs/install.md", notRun: 8},
		{path: "docs/kubernetes.md", needs: "crictl", notRun: 1},
		{path: "docs/metrics.md"},
		{path: "docs/pictures/session.md"},
		{path: "docs/pods-without-containerd.md"},
		{path: "docs/rktctl.md", notRun: 2},
		{path: "docs/troubleshooting.md"},
	}
}

// elsewhere are documents with commands that other tests execute, or that none does, with the
// reason.
var elsewhere = map[string]string{
	"CONTRIBUTING.md":          "the targets of the Makefile",
	"contrib/deploy/README.md": "a cluster; integration/deploy runs its installer",
}

// expect runs a page on a node of its own.
func (d document) expect(t *testing.T) {
	t.Helper()
	if why := missing(); why != "" {
		t.Skip(why)
	}
	if _, err := exec.LookPath(filepath.Join("/usr/local/bin", d.needs)); d.needs != "" && err != nil {
		t.Skip(err)
	}
	page := d.parse(t)
	startNode(t)
	dir, err := os.MkdirTemp("/root", "page-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	results, err := Run(ctx, page.Steps, dir, t.TempDir(), nodeEnvironment)
	if err != nil {
		t.Error(err)
	}
	for i, r := range results {
		if why := page.Steps[i].Check(r); why != "" {
			t.Errorf("%s: %s", d.path, why)
		}
	}
	expectNothingLeft(t)
}

func (d document) parse(t *testing.T) Page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(source, d.path))
	if err != nil {
		t.Fatal(err)
	}
	page, err := Parse(string(text), d.section)
	if err != nil {
		t.Fatalf("%s: %v", d.path, err)
	}
	if len(page.NotRun) != d.notRun {
		t.Errorf("%s: %d blocks are not run, and the list of documents says %d: %q", d.path, len(page.NotRun), d.notRun, page.NotRun)
	}
	return page
}

// Each document is a test: its commands work, and print what it says.
func TestTheCommandsOfTheDocumentsAreTrue(t *testing.T) {
	for _, d := range documents() {
		t.Run(strings.TrimSuffix(filepath.Base(d.path), ".md")+strings.ReplaceAll("/"+d.section, " ", "_"), d.expect)
	}
}

func TestEveryDocumentWithCommandsIsListed(t *testing.T) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	var paths []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "contrib/*.md", "contrib/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(source, pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	if len(paths) < 30 {
		t.Fatalf("there are %d documents: %q", len(paths), paths)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(path, source+"/")
		has := strings.Contains(string(text), "```sh\n") || strings.Contains(string(text), "```console\n")
		listed := elsewhere[name] != "" || slices.ContainsFunc(documents(), func(d document) bool { return d.path == name })
		if has != listed {
			t.Errorf("%s: has commands: %t, is listed: %t", name, has, listed)
		}
	}
}
