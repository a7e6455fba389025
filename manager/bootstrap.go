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

// Bootstrap is what a server knows of the world before its first call. `start`
// fills it in and hands it on.
type Bootstrap struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`    // of the container or sandbox that `start` was called for
	Group     string `json:"group"` // of all that this server serves
	// Stage1 is the choice of `start`, and Asked what it chose by. Annotations of a
	// sandbox that has no config.json were not known then.
	Stage1  config.Choice `json:"stage1"`
	Asked   config.Ask    `json:"asked"`
	Address string        `json:"address"`
	// TTRPCAddress is where events go.
	TTRPCAddress      string `json:"ttrpcAddress"`
	ContainerdVersion string `json:"containerdVersion,omitempty"` // empty before 2.3
	LogLevel          string `json:"logLevel"`                    // trace, debug, info, warn, error, fatal or panic
	Socket            string `json:"socket"`                      // path of the server's socket
	// Extensions are messages for the runtime. The first one is its options, if
	// it has any. Create requests carry them again.
	Extensions []Extension `json:"extensions,omitempty"`
}

// DropsEnded tells whether the containerd that called `start` may, when it
// restarts, take a task that refuses to list its processes for one that was
// never created, and delete it with its exit code. 2.4 and later do not.
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

// Any returns the extension as protobuf knows it.
func (e Extension) Any() *anypb.Any { return &anypb.Any{TypeUrl: e.TypeURL, Value: e.Value} }

// form is how a containerd talks to `start`. See the package's documentation.
type form int

const (
	formAddress form = iota
	formJSON
	formProtobuf
)

// request is what `start` was asked, in whichever form.
type request struct {
	Bootstrap
	form      form
	socketDir string // empty for the default
	cgroup    string // to run the server in; empty: containerd's own
}

// maxStdin bounds what is read from containerd, in bytes.
const maxStdin = 10 << 20

// readStdin returns what the caller wrote. A terminal, /dev/null and a closed
// descriptor are callers with nothing to say.
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

// parseRequest decides which form stdin is and fills in a request from it, the
// flags and the environment. It keeps nothing of stdin's memory.
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

// asOptions reads the bare Any of the older forms. Parameters meant for another
// container have fields that an Any has not; taking them for options would start
// the wrong thing.
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

// levelName returns the name of the nearest known level, the more verbose one of
// two.
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

// answer renders what containerd expects to read for a server at address.
func (r *request) answer(address string) ([]byte, error) {
	switch r.form {
	case formProtobuf:
		result := &bootapi.BootstrapResult{Version: 3, Address: address, Protocol: "ttrpc"}
		// Empty, and there: without it containerd executes `-info` to ask.
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
