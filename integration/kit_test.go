package integration

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
)

// The kit sees each limit in force, whichever version of cgroups the machine has.
func TestTheKitSeesEachLimitInForce(t *testing.T) {
	eachOf(t, []string{"native", "oci", "nspawn"}, func(t *testing.T, c *column) { // make test-kvm-kit does that for kvm
		image := filepath.Join(suite.shims, "stage1", c.name)
		cmd := exec.CommandContext(t.Context(), filepath.Join(suite.shims, "rktctl"), "stage1", "verify", "--json", "--run", "limit/", image)
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		var report struct {
			Seed   uint32
			Checks []struct{ ID, Outcome, Words string }
		}
		if json.Unmarshal(out, &report) != nil {
			t.Fatalf("%v: %s", err, out)
		}
		passed := 0
		for _, check := range report.Checks {
			switch check.Outcome {
			case "failed":
				t.Errorf("seed %d: %s: %s", report.Seed, check.ID, check.Words)
			case "passed":
				passed++
			}
		}
		if passed < 10 {
			t.Errorf("only %d checks have passed: %s", passed, out)
		}
	})
}
