package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Check is one requirement for a stage1.
type Check struct {
	ID       string // area/what
	Level    Level
	Sentence string // the statement that is true if the check passes
	Section  string // the section of docs/stage1-abi.md with the requirement
	// needs are entrypoints, and asks sets fields of a spec. If the stage1 does not declare
	// all of them, there is nothing to check.
	needs []abi.Entrypoint
	asks  func(*specs.Spec)
	// demanded is set if a stage1 without these entrypoints and fields does not reach the
	// level.
	demanded bool
	// mutable is set if the check needs a pod to which apps can be added.
	mutable bool
	// serves is set if the check needs a stage1 that answers on a socket.
	serves bool
	unless abi.Own // the check looks at this on the host
	// Fields are the fields of config.json, as JSON pointers, whose effect the check
	// verifies.
	Fields []string
	// honest is set if the check does not ask for fields that the operator lets the stage1
	// ignore.
	honest bool
	// missing returns what the machine lacks for the check, or "".
	missing func() string
	run     func(context.Context, *trial) error
}

// basic returns a check of LevelRun.
func basic(id, section, sentence string, run func(context.Context, *trial) error) Check {
	return Check{ID: id, Level: LevelRun, Section: section, Sentence: sentence, run: run}
}

// mutable returns a check of LevelRun that needs a pod to which apps can be added.
func mutable(id, section, sentence string, run func(context.Context, *trial) error, needs ...abi.Entrypoint) Check {
	return Check{ID: id, Level: LevelRun, Section: section, Sentence: sentence, mutable: true, needs: needs, run: run}
}

// showing adds to checks the fields of config.json whose effect they verify.
func showing(checks []Check, fields map[string][]string) []Check {
	for i := range checks {
		checks[i].Fields = append(checks[i].Fields, fields[checks[i].ID]...)
	}
	return checks
}

// inPod is like mutable, but passes a running pod to the check's function.
func inPod(id, section, sentence string, run func(context.Context, *barePod) error, needs ...abi.Entrypoint) Check {
	return mutable(id, section, sentence, func(ctx context.Context, t *trial) error {
		return run(ctx, t.runningPod(ctx))
	}, needs...)
}

// demanded returns a function that makes checks of a level. A stage1 does not reach the
// level without the fields that the checks ask for and the entrypoints that they need.
func demanded(level Level, asks func(*specs.Spec)) func(id, section, sentence string, run func(context.Context, *trial) error, needs ...abi.Entrypoint) Check {
	return func(id, section, sentence string, run func(context.Context, *trial) error, needs ...abi.Entrypoint) Check {
		return Check{ID: id, Level: level, Section: section, Sentence: sentence, asks: asks, needs: needs, demanded: true, run: run}
	}
}

// Checks returns all checks in the order in which they are run: level by level, because an
// early failure explains later ones.
func Checks() []Check {
	all := slices.Concat(imageChecks(), featureChecks(), runChecks(), addChecks(), hookChecks(), startChecks(), streamChecks(), signalChecks(),
		exitChecks(), removeChecks(), stopChecks(), sandboxChecks(), crashChecks(), serveChecks(),
		enterChecks(), terminalChecks(), rootChecks(), honoursChecks(), situationChecks(), limitChecks(), limitFileChecks(), userChecks(), checkpointChecks())
	all = showing(all, map[string][]string{
		"add/namespaces": {"/linux/namespaces/*/type"},
		"start/program":  {"/root/path", "/process/args", "/process/env", "/process/cwd", "/process/user/uid", "/process/user/gid"},
		"enter/program":  {"/process/args", "/process/env", "/process/cwd", "/process/user/uid", "/process/user/gid"},
		"sandbox/inside": {"/linux/namespaces/*/path"},
		"limit/memory":   {"/linux/resources/memory/limit"},
		"terminal/app":   {"/process/terminal", "/process/consoleSize/height", "/process/consoleSize/width"},
		"terminal/exec":  {"/process/terminal", "/process/consoleSize/height", "/process/consoleSize/width"},
		"user/mapped": {"/linux/uidMappings/*/containerID", "/linux/uidMappings/*/hostID", "/linux/uidMappings/*/size",
			"/linux/gidMappings/*/containerID", "/linux/gidMappings/*/hostID", "/linux/gidMappings/*/size"},
	})
	slices.SortStableFunc(all, func(a, b Check) int { return int(a.Level - b.Level) })
	return all
}

// absent returns the reason for which a check does not apply to the image, with an
// explanation, or "".
func (c *Check) absent(k *Kit) (Reason, string) {
	if c.mutable && !k.mutable() {
		return Immutable, "the stage1 is immutable: a pod has one app, and no app/add"
	}
	if c.serves && k.image.Socket() == "" {
		return NoSocket, "the stage1 declares no socket"
	}
	if c.unless != "" && k.image.Owns(c.unless) {
		return Owned, fmt.Sprintf("the stage1 owns its %s, which cannot be seen from the host", c.unless)
	}
	for _, e := range c.needs {
		if !k.image.Has(e) {
			return NoEntrypoint, fmt.Sprintf("the stage1 has no %s", e)
		}
	}
	if c.asks != nil {
		s := k.plainSpec("exit", "0")
		c.asks(s)
		if err := k.declares(s); err != nil {
			return Undeclared, err.Error()
		}
	}
	if c.honest && !k.honours(c.bare()) {
		return Excused, "the operator lets the stage1 ignore " + strings.Join(c.Fields, ", ")
	}
	if c.missing != nil {
		if why := c.missing(); why != "" {
			return NoMachine, why
		}
	}
	return "", ""
}

// bare returns a spec that has only the fields that the check asks for.
func (c *Check) bare() *specs.Spec {
	s := &specs.Spec{Root: &specs.Root{}, Process: &specs.Process{}, Linux: &specs.Linux{}}
	c.asks(s)
	return s
}

// Select returns the checks whose id matches one of the patterns. A pattern is an id, or else a part
// of ids, in which * stands for any text. Without patterns, all checks match.
func Select(all []Check, patterns ...string) []Check {
	if len(patterns) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(c Check) bool {
		return !slices.ContainsFunc(patterns, func(p string) bool {
			isID := slices.ContainsFunc(all, func(c Check) bool { return c.ID == p })
			return c.ID == p || !isID && contains(c.ID, p)
		})
	})
}

// contains reports whether the parts of a pattern between its * are in s, in order.
func contains(s, pattern string) bool {
	for part := range strings.SplitSeq(pattern, "*") {
		at := strings.Index(s, part)
		if at < 0 {
			return false
		}
		s = s[at+len(part):]
	}
	return true
}

// Level says how much of the ABI a stage1 implements. Each level includes the lower ones.
type Level int

// The levels.
const (
	LevelRun    Level = 1 + iota // apps run, end and are deleted
	LevelExec                    // further processes, and terminals
	LevelLimits                  // pause, update, statistics, OOM
	LevelUser                    // user namespaces, checkpoint and restore
)

// Levels is the number of levels.
const Levels = int(LevelUser)

var levelNames = [...]string{"nothing", "run and delete", "exec and terminal", "pause, update, statistics, OOM", "user namespaces, checkpoint"}

func (l Level) String() string {
	if l < 0 || int(l) >= len(levelNames) {
		return fmt.Sprintf("level %d", int(l))
	}
	return levelNames[l]
}
