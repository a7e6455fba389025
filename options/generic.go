package options

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	generic "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
)

// maxText is the largest size of a configuration, in bytes.
const maxText = 1 << 20

// fromGeneric reads options that name a file, or that contain a table of containerd's
// configuration as TOML. The keys are the names of runc's options as containerd spells
// them, because a handler that used runc before has such a table.
func fromGeneric(a *anypb.Any) (*Options, []string, error) {
	var g generic.Options
	if err := unmarshal(a, &g); err != nil {
		return nil, nil, err
	}
	if name := messageName(g.TypeUrl); name != "" && name != messageOf(&Options{}) {
		if g.ConfigPath == "" && len(g.ConfigBody) == 0 {
			return &Options{}, nil, nil
		}
		return &Options{}, []string{"a configuration of type " + g.TypeUrl}, nil
	}
	text, source := g.ConfigBody, "the configuration in them"
	if g.ConfigPath != "" {
		var err error
		if text, err = readConfig(g.ConfigPath); err != nil {
			return nil, nil, err
		}
		source = g.ConfigPath
	}
	o, unused, err := fromTOML(text)
	if err != nil {
		return nil, nil, invalid("%s: %v", source, err)
	}
	return o, unused, nil
}

// readConfig reads the file that a client names.
func readConfig(path string) ([]byte, error) {
	if !filepath.IsAbs(path) {
		return nil, invalid("the path of the configuration, %q, is not absolute", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a fifo must not hold up Create
	if err != nil {
		return nil, fmt.Errorf("configuration: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(invalid("the configuration %s is not a file", path), err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if len(text) > maxText {
		return nil, invalid("the configuration %s is longer than %d bytes", path, maxText)
	}
	return text, nil
}

func fromTOML(text []byte) (*Options, []string, error) {
	var table map[string]any
	if err := toml.Unmarshal(text, &table); err != nil {
		return nil, nil, err
	}
	o := &Options{}
	var unused []string
	for _, key := range slices.Sorted(maps.Keys(table)) {
		known, err := o.set(key, table[key])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", key, err)
		}
		// containerd writes all of runc's settings into its default configuration, so most
		// of them have their zero value.
		if v := table[key]; !known && v != "" && v != false && v != int64(0) {
			unused = append(unused, key)
		}
	}
	return o, unused, nil
}

// set sets the option of one key of a table. It reports whether the key is known.
func (o *Options) set(key string, value any) (known bool, err error) {
	switch key {
	case "ShimCgroup":
		return true, assign(&o.ShimCgroup, value)
	case "NoPivotRoot":
		return true, assign(&o.NoPivotRoot, value)
	case "NoNewKeyring":
		return true, assign(&o.NoNewKeyring, value)
	case "IoUid":
		return true, assignID(&o.IoUid, value)
	case "IoGid":
		return true, assignID(&o.IoGid, value)
	}
	return false, nil
}

func assign[T any](to *T, value any) error {
	v, ok := value.(T)
	if !ok {
		return fmt.Errorf("%v is not a %T", value, *to)
	}
	*to = v
	return nil
}

func assignID(to *uint32, value any) error {
	v, ok := value.(int64)
	if !ok || v < 0 || v > math.MaxUint32 {
		return fmt.Errorf("%v is not an id", value)
	}
	*to = uint32(v)
	return nil
}
