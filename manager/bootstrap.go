package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/config"
)

// Bootstrap is all that a server knows before its first call. `start` fills it in and
// passes it to the server.
type Bootstrap struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`    // of the container or sandbox that `start` was called for
	Group     string `json:"group"` // that this server serves
	// Stage1 is the choice of `start`, and Asked the reasons for it. `start` does not know
	// the annotations of a sandbox, because a sandbox has no config.json.
	Stage1  config.Choice `json:"stage1"`
	Asked   config.Ask    `json:"asked"`
	Address string        `json:"address"`
	// TTRPCAddress is the socket that events are sent to.
	TTRPCAddress      string `json:"ttrpcAddress"`
	ContainerdVersion string `json:"containerdVersion,omitempty"` // empty before 2.3
	LogLevel          string `json:"logLevel"`                    // trace, debug, info, warn, error, fatal or panic
	Socket            string `json:"socket"`                      // path of the server's socket
	// Cgroups are the cgroups of `start`, by controller, which are also containerd's. The
	// server may be in others, and so may containerd after a restart.
	Cgroups map[string]string `json:"cgroups"`
	// Extensions are messages for the runtime. The first one has the runtime's options, if
	// there are any. Create requests repeat the options.
	Extensions []Extension `json:"extensions,omitempty"`
}

// DropsEnded reports whether the containerd that called `start` is older than 2.4. When such
// a containerd restarts and a task refuses to list its processes, it takes the task for one
// that was never created, and deletes it together with its exit code.
func (b *Bootstrap) DropsEnded() bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(b.ContainerdVersion, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	return errors.Join(err, err2) != nil || x < 2 || x == 2 && y < 4
}

// Extension is a protobuf Any.
type Extension struct {
	TypeURL string `json:"typeURL"`
	Value   []byte `json:"value,omitempty"`
}

// Any returns the extension as a protobuf message.
func (e Extension) Any() *anypb.Any { return &anypb.Any{TypeUrl: e.TypeURL, Value: e.Value} }

// form is the protocol of a containerd with `start`. See the package's documentation.
type form int

const (
	formAddress form = iota
	formJSON
	formProtobuf
)

// request has the parameters of a `start`, of any form.
type request struct {
	Bootstrap
	form      form
	socketDir string // empty for the default
	cgroup    string // cgroup of the server; empty: containerd's own
}

// maxStdin is how much is read from containerd at most, in bytes.
const maxStdin = 10 << 20

// readStdin returns the text that the caller wrote. From a terminal, /dev/null and a
// closed descriptor it reads nothing.
func readStdin(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice != 0 {
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxStdin+1))
	if err != nil && !errors.Is(err, syscall.EBADF) {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	if len(b) > maxStdin {
		return nil, fmt.Errorf("read stdin: more than %d bytes", maxStdin)
	}
	return b, nil
}

// parseRequest recognises the form of stdin and fills in a request from it, the flags
// and the environment. The request does not refer to stdin's memory.
func parseRequest(stdin []byte, f *flags, getenv func(string) string) (*request, error) {
	r := &request{}
	r.Namespace, r.ID, r.Address = f.namespace, f.id, f.address
	r.TTRPCAddress, r.LogLevel = getenv("TTRPC_ADDRESS"), "info"
	if f.debug {
		r.LogLevel = "debug"
	}
	if params := asParams(stdin, f); params != nil {
		r.form = formProtobuf
		r.applyParams(params)
	} else {
		options, err := asOptions(stdin, f)
		if err != nil {
			return nil, err
		}
		r.form = formJSON
		if getenv("MAX_SHIM_VERSION") == "" {
			r.form = formAddress
		}
		if options != nil {
			r.Extensions = []Extension{*options}
		}
	}
	if r.TTRPCAddress == "" && r.Address != "" {
		r.TTRPCAddress = r.Address + ".ttrpc"
	}
	return r, nil
}

func asParams(stdin []byte, f *flags) *bootapi.BootstrapParams {
	var p bootapi.BootstrapParams
	if len(stdin) == 0 || proto.Unmarshal(stdin, &p) != nil {
		return nil
	}
	if p.GetInstanceID() != f.id || p.GetNamespace() != f.namespace {
		return nil
	}
	return &p
}

func (r *request) applyParams(p *bootapi.BootstrapParams) {
	if a := p.GetContainerdGrpcAddress(); a != "" {
		r.Address = a
	}
	if a := p.GetContainerdTtrpcAddress(); a != "" {
		r.TTRPCAddress = a
	}
	r.ContainerdVersion = p.GetContainerdVersion()
	r.LogLevel = levelName(p.GetLogLevel())
	r.socketDir = p.GetSocketDir()
	for _, e := range p.GetExtensions() {
		r.Extensions = append(r.Extensions, Extension{e.GetValue().GetTypeUrl(), e.GetValue().GetValue()})
	}
}

// asOptions reads the bare Any of the older forms. It refuses bootstrap parameters of
// another container, which it recognises by fields that an Any does not have: if they were
// taken for options, `start` would make a server for the wrong container.
func asOptions(stdin []byte, f *flags) (*Extension, error) {
	var a anypb.Any
	if len(stdin) == 0 {
		return nil, nil
	}
	if err := proto.Unmarshal(stdin, &a); err != nil {
		return nil, fmt.Errorf("stdin holds neither bootstrap parameters nor runtime options: %w", err)
	}
	if len(a.ProtoReflect().GetUnknown()) > 0 {
		return nil, fmt.Errorf("stdin holds bootstrap parameters for id %q, and the flags say %q in namespace %q",
			a.GetTypeUrl(), f.id, f.namespace)
	}
	if a.GetTypeUrl() == "" {
		if len(a.GetValue()) > 0 {
			return nil, errors.New("stdin holds runtime options without a type")
		}
		return nil, nil
	}
	return &Extension{a.GetTypeUrl(), a.GetValue()}, nil
}

// levelName returns the name of the nearest known level. Of two that are equally near
// it returns the more verbose one.
func levelName(l bootapi.LogLevel) string {
	known := []struct {
		level bootapi.LogLevel
		name  string
	}{
		{bootapi.LogLevel_LOG_LEVEL_TRACE, "trace"},
		{bootapi.LogLevel_LOG_LEVEL_DEBUG, "debug"},
		{bootapi.LogLevel_LOG_LEVEL_INFO, "info"},
		{bootapi.LogLevel_LOG_LEVEL_WARN, "warn"},
		{bootapi.LogLevel_LOG_LEVEL_ERROR, "error"},
		{bootapi.LogLevel_LOG_LEVEL_FATAL, "fatal"},
		{bootapi.LogLevel_LOG_LEVEL_PANIC, "panic"},
	}
	for i, next := range known[1:] {
		if int64(l)-int64(known[i].level) <= int64(next.level)-int64(l) {
			return known[i].name
		}
	}
	return "panic"
}

// answer returns the text that containerd expects for a server at address.
func (r *request) answer(address string) ([]byte, error) {
	switch r.form {
	case formProtobuf:
		result := &bootapi.BootstrapResult{Version: 3, Address: address, Protocol: "ttrpc"}
		// The list of capabilities is empty but must be there: without it containerd
		// executes `-info` (requirements.md#B18).
		if err := result.AddExtension(&types.MountCapabilities{}); err != nil {
			return nil, err
		}
		return proto.Marshal(result)
	case formJSON:
		return json.Marshal(struct {
			Version  int    `json:"version"`
			Address  string `json:"address"`
			Protocol string `json:"protocol"`
		}{2, address, "ttrpc"})
	default:
		return []byte(address), nil
	}
}
