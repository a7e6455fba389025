package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// versions are the versions of rktctl and of the interfaces that it was built with.
type versions struct {
	Release string `json:"release"`
	// ABI is the interface version of stage1s. RktABI are those of rkt, which images may
	// have instead.
	ABI        int    `json:"abi"`
	RktABI     string `json:"rktABI"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Containerd string `json:"containerdAPI"` // version of the module with containerd's protocols
	TTRPC      string `json:"ttrpc"`
}

func newVersion(e *Env) *cobra.Command {
	cmd := verb("version", "version [OPTIONS]", "print the versions of rktctl and of its interfaces", none)
	out := newOutput(e, cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		v := versionsOf(e)
		if !out.isText() {
			return out.writeDocument(v)
		}
		_, err := fmt.Fprintf(e.Stdout, "rktctl %s\ninterface of stage1s: version %d, and rkt's versions %s\ncontainerd's API: %s, by ttrpc %s\n%s, %s\n",
			v.Release, v.ABI, v.RktABI, v.Containerd, v.TTRPC, v.Go, v.Platform)
		return err
	}
	return cmd
}

func versionsOf(e *Env) versions {
	v := versions{
		Release: cmp.Or(e.Version, "unknown"), ABI: abi.Version, RktABI: "1 to 6",
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Containerd: "unknown", TTRPC: "unknown",
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			switch m.Path {
			case "github.com/containerd/containerd/api":
				v.Containerd = m.Version
			case "github.com/containerd/ttrpc":
				v.TTRPC = m.Version
			}
		}
	}
	return v
}
