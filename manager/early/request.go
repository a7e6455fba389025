package early

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Form is the protocol of a containerd with `start`: the documentation of package manager has
// a table.
type Form int

// The forms of containerd 1.6, of 1.7 to 2.2, and of 2.3 and later.
const (
	FormAddress Form = iota
	FormJSON
	FormProtobuf
)

// Extension is a protobuf Any.
type Extension struct {
	TypeURL string `json:"typeURL"`
	Value   []byte `json:"value,omitempty"`
}

// Request has the parameters of a `start`, of any form.
type Request struct {
	Namespace         string
	ID                string
	Address           string // containerd's
	TTRPCAddress      string // the socket that events are sent to
	ContainerdVersion string // empty before 2.3
	LogLevel          string
	// Extensions are messages for the runtime. The first one has the runtime's options, if
	// there are any.
	Extensions []Extension
	Form       Form
	SocketDir  string // empty for the default
}

// maxStdin is how much is read from containerd at most, in bytes.
const maxStdin = 10 << 20

// ReadStdin returns the text that the caller wrote. From a terminal, /dev/null and a
// closed descriptor it reads nothing.
func ReadStdin(f *os.File) ([]byte, error) {
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

// ParseRequest recognises the form of stdin and fills in a request from it, the flags
// and the environment. The request does not refer to stdin's memory.
func ParseRequest(stdin []byte, f *Flags, getenv func(string) string) (*Request, error) {
	r := &Request{Namespace: f.Namespace, ID: f.ID, Address: f.Address}
	r.TTRPCAddress, r.LogLevel = getenv("TTRPC_ADDRESS"), "info"
	if f.Debug {
		r.LogLevel = "debug"
	}
	if p, err := parseParams(stdin); err == nil && len(stdin) > 0 && p.id == f.ID && p.namespace == f.Namespace {
		r.Form = FormProtobuf
		r.applyParams(p)
	} else {
		options, err := asOptions(stdin, f)
		if err != nil {
			return nil, err
		}
		r.Form = FormJSON
		if getenv("MAX_SHIM_VERSION") == "" {
			r.Form = FormAddress
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

// params are the fields of BootstrapParams that the shim uses.
type params struct {
	id, namespace       string
	logLevel            int32
	version             string
	ttrpcAddress        string
	address, containerd string
	extensions          []Extension
	socketDir           string
}

// parseParams fails for the texts for which proto.Unmarshal fails.
func parseParams(stdin []byte) (*params, error) {
	p := &params{}
	texts := map[uint64]*string{1: &p.id, 2: &p.namespace, 4: &p.version, 5: &p.ttrpcAddress, 6: &p.address, 7: &p.containerd, 9: &p.socketDir}
	err := readFields(stdin, func(f field) (err error) {
		switch to, isText := texts[f.number]; {
		case f.wire == wireBytes && isText:
			*to, err = f.text()
		case f.wire == wireBytes && f.number == 8:
			var e Extension
			e, err = parseExtension(f.bytes)
			p.extensions = append(p.extensions, e)
		case f.wire == wireVarint && f.number == 3:
			p.logLevel = int32(f.varint)
		}
		return err
	})
	return p, err
}

// parseExtension reads an Extension, which has an Any. If the Any is there twice, the fields of
// the second are set in the first.
func parseExtension(b []byte) (Extension, error) {
	var e Extension
	err := readFields(b, func(f field) error {
		if f.wire != wireBytes || f.number != 1 {
			return nil
		}
		_, err := parseAny(f.bytes, &e)
		return err
	})
	return e, err
}

// parseAny reads an Any. It reports whether the message has fields that an Any does not have.
func parseAny(b []byte, e *Extension) (unknown bool, err error) {
	err = readFields(b, func(f field) (err error) {
		switch {
		case f.wire == wireBytes && f.number == 1:
			e.TypeURL, err = f.text()
		case f.wire == wireBytes && f.number == 2:
			e.Value = append([]byte(nil), f.bytes...)
		default:
			unknown = true
		}
		return err
	})
	return unknown, err
}

func (r *Request) applyParams(p *params) {
	if p.address != "" {
		r.Address = p.address
	}
	if p.ttrpcAddress != "" {
		r.TTRPCAddress = p.ttrpcAddress
	}
	r.ContainerdVersion = p.version
	r.LogLevel = levelName(p.logLevel)
	r.SocketDir = p.socketDir
	r.Extensions = p.extensions
}

// asOptions reads the bare Any of the older forms. It refuses bootstrap parameters of
// another container, which it recognises by fields that an Any does not have: if they were
// taken for options, `start` would make a server for the wrong container.
func asOptions(stdin []byte, f *Flags) (*Extension, error) {
	if len(stdin) == 0 {
		return nil, nil
	}
	var e Extension
	unknown, err := parseAny(stdin, &e)
	if err != nil {
		return nil, fmt.Errorf("stdin holds neither bootstrap parameters nor runtime options: %w", err)
	}
	if unknown {
		return nil, fmt.Errorf("stdin holds bootstrap parameters for id %q, and the flags say %q in namespace %q",
			e.TypeURL, f.ID, f.Namespace)
	}
	if e.TypeURL == "" {
		if len(e.Value) > 0 {
			return nil, errors.New("stdin holds runtime options without a type")
		}
		return nil, nil
	}
	return &e, nil
}

// levelName returns the name of the nearest known level of BootstrapParams. Of two that are
// equally near it returns the more verbose one.
func levelName(l int32) string {
	known := []struct {
		level int64
		name  string
	}{
		{-8, "trace"},
		{-4, "debug"},
		{0, "info"},
		{4, "warn"},
		{8, "error"},
		{10, "fatal"},
		{12, "panic"},
	}
	for i, next := range known[1:] {
		if int64(l)-known[i].level <= next.level-int64(l) {
			return known[i].name
		}
	}
	return "panic"
}

// mountCapabilities is the type of the extension of every BootstrapResult. Without it containerd
// executes `-info` (requirements.md#B18).
const mountCapabilities = "type.googleapis.com/containerd.types.MountCapabilities"

// ownMounts is the type of mounts that containerd's mount manager would do, and that is to arrive here: the stage1
// kvm gives the image to its machine. The mount manager of containerd 2.4 also forgets to send a mount if a root
// is one image of erofs.
const ownMounts = "erofs"

// layerWork is the work of the mount manager that is left to the shim for a pod whose stage1 makes roots of layers. The
// manager would have to mount the layers for it.
var layerWork = [...]string{"format", "mkdir"}

// Answer returns the text that containerd expects for the server that has a socket.
func (r *Request) Answer(socket string) []byte {
	const protocol = "ttrpc"
	address := AddressPrefix + socket
	switch r.Form {
	case FormProtobuf:
		claims := appendBytes(nil, 1, ownMounts)
		if takesLayers(socket) {
			for _, work := range layerWork {
				claims = appendBytes(claims, 2, work)
			}
		}
		capabilities := appendBytes(appendBytes(nil, 1, mountCapabilities), 2, claims)
		extension := appendBytes(nil, 1, capabilities)
		b := appendVarint(nil, 1, 3) // version
		b = appendBytes(b, 2, address)
		b = appendBytes(b, 3, protocol)
		return appendBytes(b, 6, extension)
	case FormJSON:
		text, _ := json.Marshal(struct { // strings can always be encoded
			Version  int    `json:"version"`
			Address  string `json:"address"`
			Protocol string `json:"protocol"`
		}{2, address, protocol})
		return text
	default:
		return []byte(address)
	}
}
