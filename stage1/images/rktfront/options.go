package rktfront

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// Options are the arguments of `run`, which apply to all apps of the pod.
type Options struct {
	Mutable        bool
	Interactive    bool
	Hostname       string
	AnyCapability  bool   // --disable-capabilities-restriction
	AnyPath        bool   // --disable-paths
	AnySystemCall  bool   // --disable-seccomp
	ParentIPC      bool   // --ipc=parent
	Names          string // --dns-conf-mode
	UUID           string
	PrivateNetwork bool // --net=none
	Holder         int  // the host's pid of the holder of shared namespaces; 0: the apps share none
}

// optionsFile stores the options for app/add.
const optionsFile = front + "/options"

// parseRun parses the arguments of `run` and stores them.
func parseRun(args []string) (*Options, error) {
	o := &Options{}
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.Mutable, "mutable", false, "")
	f.BoolVar(&o.Interactive, "interactive", false, "")
	f.StringVar(&o.Hostname, "hostname", "", "")
	f.StringVar(&o.Names, "dns-conf-mode", "", "")
	f.BoolVar(&o.AnyCapability, "disable-capabilities-restriction", false, "")
	f.BoolVar(&o.AnyPath, "disable-paths", false, "")
	f.BoolVar(&o.AnySystemCall, "disable-seccomp", false, "")
	network, ipc := f.String("net", "host", ""), f.String("ipc", "", "")
	// These have no effect here. They concern rkt's metadata service and
	// configuration.
	f.Bool("debug", false, "")
	for _, name := range []string{"mds-token", "local-config"} {
		f.String(name, "", "")
	}
	if err := f.Parse(args); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	switch *network {
	case "host":
	case "none":
		o.PrivateNetwork = true
	default:
		return nil, fmt.Errorf("run: --net=%s: an app has the network that it is started in, or none", *network)
	}
	switch *ipc {
	case "", "auto", "private":
	case "parent":
		o.ParentIPC = true
	default:
		return nil, fmt.Errorf("run: --ipc=%s is neither auto, private nor parent", *ipc)
	}
	if f.NArg() != 1 {
		return nil, fmt.Errorf("run: %d arguments in place of a UUID", f.NArg())
	}
	o.UUID = f.Arg(0)
	return o, o.remember()
}

func (o *Options) remember() error {
	text, err := json.Marshal(o)
	if err == nil {
		err = os.MkdirAll(front, 0o700)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(optionsFile, text, 0o600)
}

func readOptions() (*Options, error) {
	o := &Options{}
	text, err := os.ReadFile(optionsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the pod does not run, or has a request for each call")
	}
	if err != nil {
		return nil, err
	}
	return o, json.Unmarshal(text, o)
}

// apps returns the names of the pod's apps.
func apps() ([]string, error) {
	m, err := podmanifest.Read()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range m.Apps {
		names = append(names, a.Name)
	}
	return names, nil
}
