package conformance

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"testing"
)

func TestTheSameSeedGivesTheSameValuesAndAnotherSeedOthers(t *testing.T) {
	for _, seed := range []uint32{0, 1, 2, 1 << 20, math.MaxUint32} {
		a, b, other := draw(seed), draw(seed), draw(seed^0x5555)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("seed %d: %+v, and then %+v", seed, a, b)
		}
		if a.program == other.program || a.user == other.user || a.hostname == other.hostname || reflect.DeepEqual(a.groups, other.groups) {
			t.Errorf("seeds %d and %d: %+v and %+v", seed, seed^0x5555, a, other)
		}
	}
}

// A program of any seed knows itself by its name, and rktctl is not taken for one.
func TestAProgramIsRecognisedByItsName(t *testing.T) {
	for seed := range uint32(1000) {
		if v := draw(seed); !isProgram(v.program) || !isProgram(v.inRoot()) {
			t.Errorf("seed %d: %s is not recognised", seed, v.program)
		}
	}
	for _, other := range []string{"", "rktctl", "/usr/bin/rktctl", "abcdefgh", "abcdefghijkl", "systemd-nspawn"} {
		if isProgram(other) {
			t.Errorf("%s is taken for the kit's program", other)
		}
	}
}

// Values of a kind differ, because checks tell them apart by that.
func TestDrawnValuesOfAKindDiffer(t *testing.T) {
	for seed := range uint32(1000) {
		v := draw(seed)
		for kind, all := range map[string][]any{
			"ids":   {v.user, v.group, v.otherUser, v.otherGroup, v.groups[0], v.groups[1], v.appGroup, v.owner, v.ownerGroup, uint32(0)},
			"masks": {v.umask, v.appMask, uint32(0), uint32(0o22)}, "scores": {v.score, v.appScore, 0},
			"names": {v.hostname, v.domainname, v.sandboxName, filepath.Base(v.data), v.text, v.program}, "calls": {v.deniedCall, v.otherCall},
			"errors": {v.errnoOfRule, v.errnoOfArgument, uint(0)}, "capabilities": {v.capabilities[0].number, v.capabilities[1].number},
			"limits": {v.rlimits[0].kind, v.rlimits[1].kind},
		} {
			seen := map[string]bool{}
			for _, value := range all {
				if text := fmt.Sprint(value); seen[text] {
					t.Errorf("seed %d: two of the %s are %s", seed, kind, text)
				} else {
					seen[text] = true
				}
			}
		}
	}
}
