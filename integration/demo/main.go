// Command demo runs a container under io.containerd.rkt.v1 in a private containerd 2.4, prints
// its output, and removes everything again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
)

const runtimeName = "io.containerd.rkt.v1"

func main() {
	bin := flag.String("bin", "bin", "directory that make build fills")
	flag.Parse()
	if err := run(context.Background(), *bin); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string) error {
	dir, err := os.MkdirTemp("", "rkt-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	programs, err := binaries.Containerd(ctx, os.Stdout)
	if err != nil {
		return err
	}
	archive, err := writeImages(ctx, dir)
	if err != nil {
		return err
	}
	fmt.Println("==> starting a private containerd in", dir)
	d, err := daemon.Start(ctx, daemon.Options{
		Dir: dir, Programs: programs, Shims: []string{bin},
		Env: []string{"RKT_DATA_DIR=" + filepath.Join(dir, "rkt")}, Namespace: "rkt-demo",
	})
	if err != nil {
		return err
	}
	if err := errors.Join(show(ctx, d, archive), d.Stop(), leaks.Scope{Namespace: d.Namespace()}.Forget()); err != nil {
		return err
	}
	fmt.Println("\n==> done; everything of it is removed")
	return nil
}

func writeImages(ctx context.Context, dir string) (string, error) {
	fmt.Println("==> making an image from Debian's busybox")
	prog, err := binaries.TestProgram(ctx, dir)
	if err != nil {
		return "", err
	}
	images, err := image.Test(prog)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "images.tar")
	return path, image.WriteFile(path, images...)
}

// show runs ctr, and prints each call before its output.
func show(ctx context.Context, d *daemon.Daemon, archive string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"image", "import", archive},
		{"run", "--rm", "--runtime", runtimeName, image.BusyboxName, "hello", "echo", "hello from an app in a rkt pod"},
		{"run", "--detach", "--runtime", runtimeName, image.BusyboxName, "sleeper", "sleep", "600"},
		{"task", "ls"},
		{"task", "exec", "--exec-id", "look", "sleeper", "ps"},
		{"task", "kill", "--signal", "SIGKILL", "sleeper"},
		{"task", "delete", "--force", "sleeper"},
		{"container", "delete", "sleeper"},
	} {
		fmt.Println("\n$ ctr", args)
		cmd := d.Ctr(ctx, args...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		// For a killed task ctr exits with 137.
		if err := cmd.Run(); err != nil && args[1] != "delete" {
			return fmt.Errorf("ctr %v: %w", args, err)
		}
	}
	return nil
}
