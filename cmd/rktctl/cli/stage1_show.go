package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// shownStage1 is all that is known of a stage1.
type shownStage1 struct {
	Name        string            `json:"name,omitempty"` // by which pods get it; empty: by none
	AppcName    string            `json:"appcName"`
	Path        string            `json:"path"`
	Digest      string            `json:"digest"`
	Version     int               `json:"interfaceVersion"`
	Mutable     bool              `json:"mutable"` // its pods can get apps while they run
	Socket      string            `json:"socket,omitempty"`
	Own         []abi.Own         `json:"own,omitempty"`
	Entrypoints []shownEntrypoint `json:"entrypoints"`
	Fields      shownFields       `json:"fields"`
	Config      *listed           `json:"configuration,omitempty"`
	Pods        []string          `json:"pods"` // UUIDs of pods with this tree
	Warnings    []string          `json:"warnings,omitempty"`
}

// shownEntrypoint is an entrypoint that an image has, or that it leaves to stage 0.
type shownEntrypoint struct {
	Name     abi.Entrypoint `json:"name"`
	Path     string         `json:"path,omitempty"`
	Deadline string         `json:"deadline,omitempty"`
	Instead  string         `json:"instead,omitempty"` // what stage 0 does without it
}

// shownFields are the fields of a config.json that can have an effect.
type shownFields struct {
	From   string   `json:"from"`   // features/probe, the features document, or nothing
	Stage1 []string `json:"stage1"` // that the stage1 honours
	Stage0 []string `json:"stage0"` // that stage 0 enforces
	Accept []string `json:"accept"` // that the configuration lets it ignore
	Probe  string   `json:"probe,omitempty"`
}

// instead says what stage 0 does if an image has no such entrypoint: section 1 of the ABI.
var instead = map[abi.Entrypoint]string{
	abi.AppAdd:        "the pod has one app, which run executes",
	abi.AppStart:      "the pod has one app, which run executes",
	abi.AppRm:         "the pod has one app, which run executes",
	abi.AppSignal:     "stage 0 signals the app's process",
	abi.AppStop:       "stage 0 kills the app's cgroup",
	abi.Stop:          "stage 0 sends SIGTERM, then SIGKILL, to run",
	abi.GC:            "nothing",
	abi.Enter:         "an exec is refused",
	abi.AppPause:      "stage 0 freezes the app's cgroup",
	abi.AppResume:     "stage 0 thaws the app's cgroup",
	abi.AppUpdate:     "stage 0 changes the limits of the app's cgroup",
	abi.AppStats:      "stage 0 reads the statistics of the app's cgroup",
	abi.Network:       "network namespaces are not watched",
	abi.AppCheckpoint: "checkpoints are refused",
	abi.FeaturesProbe: "the features document counts",
}

func newStage1Show(e *Env) *cobra.Command {
	cmd := verb("stage1-show", "show [OPTIONS] NAME|IMAGE|DIGEST", "show what a stage1 can do, and who uses it", takes(1, 1, "one NAME, IMAGE or DIGEST"))
	out := newOutput(e, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := showStage1(cmd.Context(), e, args[0])
		if err != nil {
			return fmt.Errorf("stage1 show %s: %w", args[0], err)
		}
		if !out.isText() {
			return out.writeDocument(s)
		}
		return s.write(e.Stdout)
	}
	return cmd
}

// wantedImage returns the image that an argument names: a path, the name of a stage1 of this
// node, or the beginning of the digest of a tree in the store. name is the stage1's name, if
// the argument is one.
func wantedImage(ctx context.Context, e *Env, c *config.Config, arg string) (i *image.Image, path, name string, err error) {
	if strings.Contains(arg, "/") {
		i, err = rulesOf(c).Inspect(ctx, arg)
		return i, arg, "", err
	}
	named, err := isStage1(c, arg)
	if err != nil {
		return nil, "", "", err
	}
	if named {
		i, path, err = imageOf(ctx, e, c, arg)
		return i, path, arg, err
	}
	digest, err := treeNamed(e, arg)
	if err != nil {
		return nil, "", "", err
	}
	store, err := existingStore(e)
	if err == nil {
		i, err = store.With(rulesOf(c)).Rendered(digest)
	}
	return i, treesDir(e), "", err
}

// isStage1 reports whether a word is the name of a stage1 of this node.
func isStage1(c *config.Config, word string) (bool, error) {
	names, err := image.Installed()
	_, configured := c.Stage1s[word]
	return configured || slices.Contains(names, word), err
}

// treeNamed returns the digest of the only tree whose digest begins with a text, with or
// without sha512-.
func treeNamed(e *Env, begins string) (string, error) {
	entries, err := os.ReadDir(treesDir(e))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var found []string
	for _, entry := range entries {
		if digest := entry.Name(); strings.HasPrefix(digest, "sha512-") && (strings.HasPrefix(digest, begins) || strings.HasPrefix(digest, "sha512-"+begins)) {
			found = append(found, digest)
		}
	}
	switch len(found) {
	case 0:
		return "", errors.New("it is no path of an image, no stage1 of this node (rktctl stage1 list shows those), and no digest of a tree in " + treesDir(e))
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d trees have a digest that begins like this: %s", len(found), strings.Join(found, ", "))
}

func showStage1(ctx context.Context, e *Env, arg string) (*shownStage1, error) {
	c, err := config.Open(e.Getenv)
	if err != nil {
		return nil, err
	}
	i, path, name, err := wantedImage(ctx, e, c, arg)
	if err != nil {
		return nil, err
	}
	defer i.Close()
	s := &shownStage1{
		Name: name, AppcName: i.AppcName(), Path: path, Digest: i.Digest(), Version: i.Version(), Mutable: i.Mutable(),
		Socket: i.Socket(), Warnings: i.Warnings(), Pods: []string{},
	}
	for _, o := range abi.Owns() {
		if i.Owns(o) {
			s.Own = append(s.Own, o)
		}
	}
	s.entrypoints(i)
	s.fields(ctx, i)
	if name != "" {
		l := describe(ctx, e, c, name)
		s.Config, s.Fields.Accept = &l, append(s.Fields.Accept, l.Accept...)
	}
	return s, s.usedBy(e)
}

// entrypoints lists the entrypoints of the image, and then those that it does not have.
func (s *shownStage1) entrypoints(i *image.Image) {
	var absent []shownEntrypoint
	limit := stage1.New(i, s.AppcName, nil).Limit
	for _, e := range abi.Entrypoints() {
		switch {
		case i.Has(e):
			s.Entrypoints = append(s.Entrypoints, shownEntrypoint{Name: e, Path: i.Entrypoint(e), Deadline: limit(e).String()})
		case instead[e] != "":
			absent = append(absent, shownEntrypoint{Name: e, Instead: instead[e]})
		}
	}
	s.Entrypoints = append(s.Entrypoints, absent...)
}

// fields lists the fields that have an effect.
func (s *shownStage1) fields(ctx context.Context, i *image.Image) {
	with, called, err := probed(ctx, i, s.AppcName)
	fields, declares := with.Fields()
	s.Fields = shownFields{From: "nothing: every field is refused", Stage1: append([]string{}, fields...), Stage0: stage1.Stage0Fields(i.Owns(abi.OwnResources)), Accept: []string{}}
	switch {
	case err != nil:
		s.Fields.Probe = "failed: " + err.Error()
	case called:
		s.Fields.From = "the answer of features/probe on this node"
		return
	case i.Has(abi.FeaturesProbe):
		s.Fields.Probe = "not called: that needs root and an image that is a directory or in the tree store"
	}
	switch {
	case i.RktABI():
		s.Fields.From = "the interface version"
	case declares:
		s.Fields.From = "the features document"
	}
}

// usedBy lists the pods that have the tree.
func (s *shownStage1) usedBy(e *Env) error {
	node, err := view.Open(dataDir(e))
	if err != nil {
		return err
	}
	pods, err := node.Pods()
	if errors.Is(err, fs.ErrPermission) {
		s.Warnings = append(s.Warnings, "pods can only be read by root")
		return nil
	}
	for _, p := range pods {
		if p.Stage1.Digest == s.Digest {
			s.Pods = append(s.Pods, p.UUID)
		}
	}
	return err
}

func (s *shownStage1) write(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, interface version %d\n  image:  %s\n  digest: %s\n", cmp.Or(s.Name, s.AppcName), s.Version, s.Path, s.Digest)
	if c := s.Config; c != nil {
		fmt.Fprintf(&b, "  default of this node: %s; pods may ask for it: %s; pods may leave it: %s; pinned: %s\n", yes(c.Default), yes(c.PodsMayAsk), yes(c.PodsMayLeave), yes(c.Pinned))
		if c.Error != "" {
			fmt.Fprintf(&b, "  ERROR: %s\n", c.Error)
		}
	}
	fmt.Fprintf(&b, "  pods can get apps while they run: %s\n", yes(s.Mutable))
	if s.Socket != "" {
		fmt.Fprintf(&b, "  answers calls on the socket %s\n", s.Socket)
	}
	if len(s.Own) > 0 {
		fmt.Fprintf(&b, "  does by itself: %s\n", joined(s.Own))
	}
	for _, w := range s.Warnings {
		fmt.Fprintf(&b, "  warning: %s\n", w)
	}
	b.WriteString("\nEntrypoints\n")
	for _, e := range s.Entrypoints {
		what := fmt.Sprintf("%s, at most %s", e.Path, e.Deadline)
		if e.Instead != "" {
			what = "- " + e.Instead
		}
		fmt.Fprintf(&b, "  %-15s %s\n", e.Name, what)
	}
	fmt.Fprintf(&b, "\nFields of config.json, from %s\n", s.Fields.From)
	if s.Fields.Probe != "" {
		fmt.Fprintf(&b, "  features/probe: %s\n", s.Fields.Probe)
	}
	for _, list := range []struct {
		who    string
		fields []string
	}{{"the stage1 honours", s.Fields.Stage1}, {"stage 0 enforces", s.Fields.Stage0}, {"the configuration lets it ignore", s.Fields.Accept}} {
		if len(list.fields) > 0 {
			fmt.Fprintf(&b, "  %s\n    %s\n", list.who, strings.Join(wrapped(strings.Join(list.fields, " "), 72), "\n    "))
		}
	}
	fmt.Fprintf(&b, "\nPods with this tree: %s\n", cmp.Or(strings.Join(s.Pods, ", "), "none"))
	_, err := io.WriteString(out, abi.Printable(b.String()))
	return err
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func joined[S ~string](words []S) string {
	var all []string
	for _, w := range words {
		all = append(all, string(w))
	}
	return strings.Join(all, ", ")
}
