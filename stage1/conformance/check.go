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
	Sentence string // what holds if the check passes
	Section  string // the section of docs/stage1-abi.md with the requirement
	// needs are the entrypoints, and asks the changes of a spec, without which there is
	// nothing to check.
	needs []abi.Entrypoint
	asks  func(*specs.Spec)
	// demanded is set if a stage1 without these does not reach the level.
	demanded bool
	// mutable is set if the check needs a pod to which apps can be added.
	mutable bool
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

// inPod returns such a check whose run gets a pod that runs.
func inPod(id, section, sentence string, run func(context.Context, *barePod) error, needs ...abi.Entrypoint) Check {
	return mutable(id, section, sentence, func(ctx context.Context, t *trial) error {
		return run(ctx, t.runningPod(ctx))
	}, needs...)
}

// demanded returns a maker of checks of a level that a stage1 does not reach without what they
// ask for and need.
func demanded(level Level, asks func(*specs.Spec)) func(id, section, sentence string, run func(context.Context, *trial) error, needs ...abi.Entrypoint) Check {
	return func(id, section, sentence string, run func(context.Context, *trial) error, needs ...abi.Entrypoint) Check {
		return Check{ID: id, Level: level, Section: section, Sentence: sentence, asks: asks, needs: needs, demanded: true, run: run}
	}
}

// Checks returns all checks in the order in which they are run: level by level, because an
// early failure explains later ones.
func Checks() []Check {
	all := slices.Concat(imageChecks(), runChecks(), addChecks(), startChecks(), streamChecks(), signalChecks(),
		exitChecks(), removeChecks(), stopChecks(), sandboxChecks(), crashChecks(),
		enterChecks(), terminalChecks(), limitChecks(), userChecks(), checkpointChecks())
	slices.SortStableFunc(all, func(a, b Check) int { return int(a.Level - b.Level) })
	return all
}

// absent returns why a check does not apply to the image, or "".
func (c *Check) absent(k *Kit) string {
	if c.mutable && !k.mutable() {
		return "the stage1 is immutable: a pod has one app, and no app/add"
	}
	for _, e := range c.needs {
		if !k.image.Has(e) {
			return fmt.Sprintf("the stage1 has no %s entrypoint", e)
		}
	}
	if c.asks == nil {
		return ""
	}
	s := k.plainSpec("exit", "0")
	c.asks(s)
	if err := k.declares(s); err != nil {
		return err.Error()
	}
	return ""
}

// Select returns the checks whose id matches one of some patterns: a part of it,
// or with a * any part there. No pattern matches all.
func Select(all []Check, patterns ...string) []Check {
	if len(patterns) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(c Check) bool {
		return !slices.ContainsFunc(patterns, func(p string) bool { return contains(c.ID, p) })
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
