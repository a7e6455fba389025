package view

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Node is the data directory of a node. Its methods may be called concurrently.
type Node struct {
	files  *disk.Reader
	bootID string
}

// Open returns the node with a data directory, which need not exist.
func Open(dataDir string) (*Node, error) {
	files, err := disk.NewReader(dataDir)
	if err != nil {
		return nil, err
	}
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	return &Node{files, boot}, nil
}

// DataDir returns the data directory.
func (n *Node) DataDir() string { return n.files.Path() }

// Pods returns all pods, the oldest first. Pods that vanish while they are read are left
// out.
func (n *Node) Pods() ([]*Pod, error) {
	uuids, err := n.files.UUIDs()
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	pods := []*Pod{}
	for _, uuid := range uuids {
		p, err := n.Pod(uuid)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	slices.SortStableFunc(pods, func(a, b *Pod) int { return a.Created.Compare(b.Created) })
	return pods, nil
}

// Pod returns the pod with a UUID. The error is errdefs.ErrNotFound if there is none.
func (n *Node) Pod(uuid string) (*Pod, error) {
	f, err := n.files.Read(uuid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("pod %s: %w", uuid, errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", uuid, err)
	}
	return n.newPod(f), nil
}

// Find returns the pod that a word names: the UUID, the id of the sandbox, or the id or the
// name of an app, or the beginning of one of these if no other pod has it. If the word names
// an app of the pod, Find returns the app as well. The error is errdefs.ErrNotFound if the
// word names no pod, and errdefs.ErrInvalidArgument if it names several.
func (n *Node) Find(word string) (*Pod, *App, error) {
	pods, err := n.Pods()
	if err != nil {
		return nil, nil, err
	}
	return Find(pods, word)
}

// Find is Node.Find among some pods.
func Find(pods []*Pod, word string) (*Pod, *App, error) {
	if word == "" {
		return nil, nil, fmt.Errorf("an empty word names no pod: %w", errdefs.ErrInvalidArgument)
	}
	for _, matches := range []func(string) bool{
		func(s string) bool { return s == word },
		func(s string) bool { return strings.HasPrefix(s, word) },
	} {
		var found []*Pod
		for _, p := range pods {
			if p.named(matches) {
				found = append(found, p)
			}
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			app, err := found[0].appNamed(matches, word)
			return found[0], app, err
		}
		var names []string
		for _, p := range found {
			names = append(names, fmt.Sprintf("%s (%s in %s)", p.UUID, p.Sandbox, p.Namespace))
		}
		return nil, nil, fmt.Errorf("%q names %d pods, %s: %w", word, len(found), strings.Join(names, ", "), errdefs.ErrInvalidArgument)
	}
	return nil, nil, fmt.Errorf("no pod has a UUID, an id or an app that begins with %q: %w", word, errdefs.ErrNotFound)
}

// FindApp returns the app of the pod that a word names: its id or its name, or the beginning of one
// of these if no other app has it. The errors are those of Node.Find.
func (p *Pod) FindApp(word string) (*App, error) {
	for _, matches := range []func(string) bool{
		func(s string) bool { return s == word },
		func(s string) bool { return word != "" && strings.HasPrefix(s, word) },
	} {
		found, ids := p.apps(matches)
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		return nil, p.ambiguous(word, ids)
	}
	return nil, fmt.Errorf("pod %s has no app %s: %w", p.UUID, word, errdefs.ErrNotFound)
}

// apps returns the apps whose id or name matches, and their ids.
func (p *Pod) apps(matches func(string) bool) (found []*App, ids []string) {
	for i := range p.Apps {
		if a := &p.Apps[i]; matches(a.ID) || matches(a.Name) {
			found, ids = append(found, a), append(ids, a.ID)
		}
	}
	return found, ids
}

func (p *Pod) ambiguous(word string, ids []string) error {
	return fmt.Errorf("%q names %d apps of pod %s, %s: %w", word, len(ids), p.UUID, strings.Join(ids, ", "), errdefs.ErrInvalidArgument)
}

// named reports whether a name of the pod or of one of its apps matches.
func (p *Pod) named(matches func(string) bool) bool {
	return matches(p.UUID) || matches(p.Sandbox) || slices.ContainsFunc(p.Apps, func(a App) bool { return matches(a.ID) || matches(a.Name) })
}

// appNamed returns the only app whose id or name matches, or nil if the word names the pod.
func (p *Pod) appNamed(matches func(string) bool, word string) (*App, error) {
	found, ids := p.apps(matches)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1 && !matches(p.UUID) && !matches(p.Sandbox):
		return nil, p.ambiguous(word, ids)
	}
	return nil, nil
}

// Journal returns the entries of a pod's journal, in the order in which the calls ended. The
// error is errdefs.ErrNotFound if there is no such pod.
func (n *Node) Journal(uuid string) ([]journal.Entry, error) {
	var entries []journal.Entry
	err := n.in(uuid, func(dir *os.Root) (err error) {
		entries, err = journal.ReadIn(dir)
		return err
	})
	return entries, err
}

// Manifest returns the text of a pod's manifest, or of the image manifest of one of its
// apps.
func (n *Node) Manifest(uuid string, app *App) ([]byte, error) {
	var text []byte
	err := n.in(uuid, func(dir *os.Root) error {
		p, err := n.files.Read(uuid)
		switch {
		case err != nil:
		case app != nil:
			text, err = p.ImageManifest(dir, disk.AppName(app.Name))
		default:
			text, err = p.Manifest(dir)
		}
		return err
	})
	return text, err
}

// in calls f with the open directory of a pod.
func (n *Node) in(uuid string, f func(dir *os.Root) error) error {
	dir, _, err := n.files.Open(uuid)
	if err == nil {
		defer dir.Close()
		err = f(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pod %s: %v: %w", uuid, err, errdefs.ErrNotFound)
	}
	return err
}

// startedByJournal returns the time at which an app was started, as far as the journal goes
// back.
func (n *Node) startedByJournal(uuid, app string) time.Time {
	entries, err := n.Journal(uuid)
	if err != nil {
		return time.Time{}
	}
	for _, e := range entries {
		if e.Entrypoint == abi.AppStart && e.App == app && e.Code == 0 && e.State == "" {
			return e.Time.Add(time.Duration(e.Millis * float64(time.Millisecond)))
		}
	}
	return time.Time{}
}
