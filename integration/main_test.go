package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
)

var (
	runtimesFlag = flag.String("runtimes", envOr("RKT_TEST_RUNTIMES", "native"), "columns to run, of native, oci, nspawn, runc, and of oci with crun, runsc or runc-current in its place")
	releasesFlag = flag.String("releases", envOr("RKT_TEST_RELEASES", "2.4,1.7,1.6"), "releases of containerd; the first runs every case, the others the most important ones")
	binFlag      = flag.String("bin", envOr("RKT_TEST_BIN", "../bin"), "directory that make build fills")
	longFlag     = flag.Bool("long", envOr("RKT_TEST_LONG", "") != "", "cases that repeat something do so as often as is ever demanded")
)

// suite has everything that TestMain sets up once, for all cases.
var suite struct {
	dir      string // private directory
	programs string // containerd, ctr
	shims    string // a copy of -bin, with the faulty stage1s of stage1_test.go beside the real ones
	testprog string
	archive  string // the images
	columns  []*column
	older    []*older
	pods     leaks.Pods
}

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getuid() != 0 {
		fmt.Println("SKIP: the integration suite needs root: containers, mounts and cgroups are real")
		os.Exit(0)
	}
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if suite.dir, err = os.MkdirTemp("", "rkt-it-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(suite.dir)
	// MkdirTemp makes a directory that other users cannot enter, and one case runs the shim as
	// another user.
	if err := os.Chmod(suite.dir, 0o755); err != nil {
		return 0, err
	}
	if err := prepare(ctx); err != nil {
		return 0, err
	}
	defer func() {
		for _, o := range suite.older {
			if o.col != nil {
				suite.columns = append(suite.columns, o.col)
			}
		}
		for _, c := range suite.columns {
			if e := c.close(); e != nil && err == nil {
				err = e
			}
		}
	}()
	if err := openColumns(ctx); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// openColumns opens the columns of the first release, and records the others.
func openColumns(ctx context.Context) error {
	for i, version := range strings.Split(*releasesFlag, ",") {
		r, err := findRelease(version)
		if err != nil {
			return err
		}
		for _, name := range strings.Split(*runtimesFlag, ",") {
			if i > 0 {
				suite.older = append(suite.older, &older{runtime: name, release: r})
				continue
			}
			c, err := openColumn(ctx, name, r)
			if err != nil {
				return err
			}
			suite.columns = append(suite.columns, c)
		}
	}
	return openShort(ctx)
}

// openShort opens columns for the cases of inShort: nspawn if native is a column, and crun and
// a current runc if oci is a column, unless they are columns for all cases. With -test.short
// crun and the current runc are left out.
func openShort(ctx context.Context) error {
	names := strings.Split(*runtimesFlag, ",")
	for _, short := range []struct{ name, beside, program string }{
		{"nspawn", "native", nspawnProgram}, {"crun", "oci", "crun"}, {currentRunc, "oci", "runc"}, // wrap makes the images of these two
	} {
		if short.beside == "oci" && testing.Short() {
			continue
		}
		if _, err := exec.LookPath(short.program); err != nil || !slices.Contains(names, short.beside) || slices.Contains(names, short.name) {
			continue
		}
		c, err := openColumn(ctx, short.name, suite.columns[0].release)
		if err != nil {
			return err
		}
		c.few = true
		suite.columns = append(suite.columns, c)
	}
	return nil
}

func prepare(ctx context.Context) (err error) {
	if suite.programs, err = binaries.Containerd(ctx, os.Stderr); err != nil {
		return err
	}
	if suite.testprog, err = binaries.TestProgram(ctx, suite.dir); err != nil {
		return err
	}
	suite.archive = filepath.Join(suite.dir, "images.tar")
	if err := writeImages(suite.archive, suite.testprog); err != nil {
		return err
	}
	suite.shims = filepath.Join(suite.dir, "bin")
	if *runtimesFlag == "runc" {
		return os.Mkdir(suite.shims, 0o755)
	}
	if _, err := os.Stat(filepath.Join(*binFlag, "containerd-shim-rkt-v1")); err != nil {
		return fmt.Errorf("run make build first: %w", err)
	}
	if out, err := exec.Command("cp", "-a", *binFlag, suite.shims).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", *binFlag, err, out)
	}
	return nil
}

func writeImages(path, testprog string) error {
	images, err := image.Test(testprog)
	if err != nil {
		return err
	}
	return image.WriteFile(path, images...)
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
