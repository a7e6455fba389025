package early

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Actions with which `delete` executes this program again, to collect in another process.
// No other caller uses them.
const (
	CollectAction = "collect"
	FinishAction  = "finish"
)

// Flags are the arguments of a call of this program, in the syntax of package flag.
type Flags struct {
	Namespace     string
	ID            string
	Address       string
	publishBinary string
	Bundle        string
	Socket        string
	debugSocket   string
	Debug         bool
	Version       bool
	Info          bool
	Help          bool

	Action   string   // start, delete, collect, finish, or empty: serve
	Argument string   // of the action
	unknown  []string // flags of a containerd newer than this program
}

func (f *Flags) set() *flag.FlagSet {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&f.Namespace, "namespace", "", "`namespace` of the container")
	fs.StringVar(&f.ID, "id", "", "`id` of the container")
	fs.StringVar(&f.Address, "address", "", "containerd's gRPC `address`")
	fs.StringVar(&f.publishBinary, "publish-binary", "", "accepted and not used: events go to TTRPC_ADDRESS")
	fs.StringVar(&f.Bundle, "bundle", "", "the bundle's `directory`, instead of the working directory")
	fs.StringVar(&f.Socket, "socket", "", "serve on a socket at `path`, for a server started by hand")
	fs.StringVar(&f.debugSocket, "debug-socket", "", "accepted and not used: there is no debug server")
	fs.BoolVar(&f.Debug, "debug", false, "log more")
	fs.BoolVar(&f.Version, "version", false, "print the version")
	fs.BoolVar(&f.Version, "v", false, "print the version")
	fs.BoolVar(&f.Info, "info", false, "read runtime options from stdin and write RuntimeInfo to stdout, both protobuf")
	fs.BoolVar(&f.Help, "help", false, "print this")
	fs.BoolVar(&f.Help, "h", false, "print this")
	return fs
}

// ParseFlags reads the arguments after the program's name. Only `delete` accepts unknown
// flags: a newer containerd must be able to delete the containers of this release.
func ParseFlags(args []string) (*Flags, error) {
	f := &Flags{}
	fs := f.set()
	known, unknown := splitUnknown(fs, args)
	if err := fs.Parse(known); err != nil {
		return nil, err
	}
	f.Action, f.Argument, f.unknown = fs.Arg(0), fs.Arg(1), unknown
	switch {
	case f.Action != "" && !isAction(f.Action):
		return nil, fmt.Errorf("unknown action %q: it is start, delete or none", f.Action)
	case len(unknown) > 0 && f.Action != "delete" && !f.Help:
		return nil, fmt.Errorf("unknown flag %s", unknown[0])
	}
	return f, nil
}

// Check returns an error if a flag that every action needs is missing or wrong. Namespace
// and id become parts of paths and of socket names.
func (f *Flags) Check() error {
	if f.Namespace == "" {
		return errors.New("the namespace (-namespace) must not be empty")
	}
	if f.ID == "" {
		return errors.New("the container's id (-id) must not be empty")
	}
	if err := checkName(f.Namespace); err != nil {
		return fmt.Errorf("namespace %q: %w", f.Namespace, err)
	}
	if err := checkName(f.ID); err != nil {
		return fmt.Errorf("id %q: %w", f.ID, err)
	}
	return nil
}

// checkName refuses a name that leads to another directory as an element of a path.
func checkName(s string) error {
	if s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return errors.New("not a name")
	}
	return nil
}

func isAction(s string) bool {
	return s == "start" || s == "delete" || s == CollectAction || s == FinishAction
}

// splitUnknown separates the flags that fs does not define, and their values, from the
// other arguments.
func splitUnknown(fs *flag.FlagSet, args []string) (known, unknown []string) {
	for i := 0; i < len(args); i++ {
		name, hasValue := flagName(args[i])
		if name == "" {
			return append(known, args[i:]...), unknown
		}
		f := fs.Lookup(name)
		switch {
		case f == nil:
			unknown = append(unknown, args[i])
			if !hasValue && isValue(args[i+1:]) {
				i++
			}
		case !hasValue && !isBool(f) && i+1 < len(args):
			known = append(known, args[i], args[i+1])
			i++
		default:
			known = append(known, args[i])
		}
	}
	return known, unknown
}

// flagName returns the name in "-name", "--name" and "-name=value", and an empty name for
// an argument that is no flag, or that package flag refuses.
func flagName(arg string) (name string, hasValue bool) {
	if len(arg) < 2 || arg[0] != '-' || arg == "--" {
		return "", false
	}
	name = strings.TrimPrefix(arg[1:], "-")
	if strings.HasPrefix(name, "-") {
		return "", false
	}
	name, _, hasValue = strings.Cut(name, "=")
	return name, hasValue
}

// isValue guesses whether the first of rest is the value of the unknown flag before it.
// The action is the last argument, so a word that names an action is a value only if
// another action follows it.
func isValue(rest []string) bool {
	if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return false
	}
	if !isAction(rest[0]) {
		return true
	}
	return slices.ContainsFunc(rest[1:], isAction)
}

func isBool(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// Usage returns the help of the program.
func Usage(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is a containerd runtime: containerd calls it.\n\n"+
		"usage: %s -namespace NS -id ID [flags] [start | delete]\n\n", name, name)
	fs := (&Flags{}).set()
	fs.SetOutput(&b)
	fs.PrintDefaults()
	return b.String()
}
