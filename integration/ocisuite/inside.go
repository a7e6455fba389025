package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
)

// programTimeout is the time limit for one program. A program waits for up to ten seconds,
// several times.
const programTimeout = 3 * time.Minute

// uncoverEtc removes the enclosure's mount at /etc: runtimetest expects that mountinfo names the root
// of a bind mount of /etc "etc", which is not so if /etc is a mount of its own.
func uncoverEtc() error {
	if err := unix.Unmount("/etc", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("uncover /etc: %w", err)
	}
	return nil
}

// inside runs the programs with one column and writes their results to a file.
func inside(o options) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	columns, err := columnsNamed(o.columns)
	if err != nil {
		return err
	}
	environment, stop, err := columns[0].open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	names, err := programNames(o.run)
	if err != nil {
		return err
	}
	results := map[string]result{}
	for _, name := range names {
		fmt.Printf("### %s\n", name)
		if results[name], err = runProgram(ctx, name, environment); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	b, err := json.Marshal(results)
	if err != nil {
		return err
	}
	return os.WriteFile(reportFile, b, 0o644)
}

// open returns the environment of the programs. If the column needs a containerd, open
// starts one, and stop ends it.
func (c column) open(ctx context.Context) (environment []string, stop func() error, err error) {
	if c.shim == "" {
		return append(os.Environ(), "RUNTIME=runc"), func() error { return nil }, nil
	}
	d, err := daemon.Start(ctx, daemon.Options{
		Dir: daemonDir, Programs: programsDir, Shims: []string{shimsDir}, Namespace: "oci",
		Env: []string{"RKT_DATA_DIR=" + daemonDir + "/rkt"},
	})
	if err != nil {
		return nil, nil, err
	}
	// The variables of ./client.
	return append(os.Environ(), "RUNTIME="+programsDir+"/client",
		"OCI_ADDRESS="+d.Address(), "OCI_NAMESPACE="+d.Namespace(), "OCI_RUNTIME="+c.shim), d.Stop, nil
}

// programNames lists the programs whose names match.
func programNames(pattern string) ([]string, error) {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(toolsDir, "validation"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if match.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil, errors.New("no program matches " + pattern)
	}
	return names, nil
}

// runProgram runs one program. Its output is also in the column's log.
func runProgram(ctx context.Context, name string, environment []string) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(toolsDir, "validation", name))
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = toolsDir, environment, &stdout, &stderr
	cmd.WaitDelay = 10 * time.Second // runc's containers may have its standard error
	err := cmd.Run()
	fmt.Printf("%s%s\n", stdout.Bytes(), stderr.Bytes())
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		return result{}, err
	}
	r := readTAP(stdout.String())
	if err != nil {
		r.Ended = strings.TrimSpace(err.Error())
	}
	return r, nil
}
