package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/rpcs"
)

// answersFile is the file to which the process in the enclosure writes the answers of a
// column's shims.
const answersFile = "/run/suite/answers.json"

// ask puts the questions of package rpcs to a column's shims. It uses an enclosure, because the
// shims of runc leave things that end with the enclosure.
func (c column) ask(ctx context.Context, p programs, dir string) (rpcs.Answers, error) {
	log, err := os.Create(filepath.Join(dir, c.name+"-rpcs.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	e := enclosure.Enclosure{
		Dir:    filepath.Join(dir, c.name+"-rpcs"),
		Args:   []string{"-columns=" + c.name, "-ask"},
		Stdout: log,
		Stderr: log,
	}
	defer os.RemoveAll(e.Dir)
	if err := e.Prepare(); err != nil {
		return nil, err
	}
	if err := c.fill(ctx, e, p); err != nil {
		return nil, err
	}
	code, err := e.Run(ctx)
	if err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, fmt.Errorf("ask %s: exit code %d: %s", c.runtime, code, tail(log.Name()))
	}
	b, err := os.ReadFile(e.Path(answersFile))
	if err != nil {
		return nil, err
	}
	var answers rpcs.Answers
	return answers, json.Unmarshal(b, &answers)
}

// insideAsking puts every RPC to one shim in every state, for ask.
func insideAsking(o options) (err error) {
	columns, err := columnsNamed(o.columns)
	if err != nil {
		return err
	}
	for _, v := range columns[0].environment() {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	d, err := daemon.Start(context.Background(), daemon.Options{Dir: "/run/suite/d", Programs: programDir, Namespace: "rpcs"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	answers, err := askDaemon(d, columns[0])
	if err != nil {
		return err
	}
	return writeAnswers(answersFile, answers)
}

func askDaemon(d *daemon.Daemon, c column) (rpcs.Answers, error) {
	client, err := d.Client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx := namespaces.WithNamespace(context.Background(), d.Namespace())
	files, err := image.Busybox()
	if err != nil {
		return nil, err
	}
	archive := "/run/suite/image.tar"
	if err := image.WriteFile(archive, image.Image{Name: image.BusyboxName, Layers: [][]image.File{files}}); err != nil {
		return nil, err
	}
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := client.Import(ctx, f); err != nil {
		return nil, err
	}
	img, err := client.GetImage(ctx, image.BusyboxName)
	if err != nil {
		return nil, err
	}
	if err := img.Unpack(ctx, ""); err != nil {
		return nil, err
	}
	return rpcs.Ask(ctx, rpcs.Rig{
		Client: client, Image: img, Runtime: c.runtime, Args: []string{"/bin/sleep", "600"},
		Bundle: d.Bundle, Prefix: "c", Leave: c.name == "runc",
	})
}

func writeAnswers(file string, answers rpcs.Answers) error {
	b, err := json.MarshalIndent(answers, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}
