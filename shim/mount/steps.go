package mount

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// Words before a slash in the type of a mount are work for containerd's mount manager. containerd leaves to a shim
// what the answer to `start` claims (requirements.md#B18).
const (
	wordFormat = "format" // fill in the words {{ … }} of source, target and options
	wordMkdir  = "mkdir"  // make the directories that options name
)

// mkdirOption is followed by PATH[:MODE].
const mkdirOption = managers + "mkdir.path="

// Steps does the work of containerd's mount manager that needs no mount. Some of the mounts may refer to earlier
// ones: then the first ones are parts of the root, in directories that their numbers name. It returns how many
// these are. The further mounts are made on the root.
func Steps(mounts []*types.Mount) (steps []abi.Mount, parts int, err error) {
	for i, m := range mounts {
		s, refers, err := step(m, mounts[:i])
		if err != nil {
			return nil, 0, fmt.Errorf("mount %s of type %s: %w", m.Source, m.Type, err)
		}
		if refers {
			parts = i
		}
		steps = append(steps, s)
	}
	return steps, parts, nil
}

// step does the work of one mount, and reports whether it refers to earlier ones.
func step(m *types.Mount, earlier []*types.Mount) (s abi.Mount, refers bool, err error) {
	s = abi.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options}
	for {
		word, kind, found := strings.Cut(s.Type, "/")
		if !found {
			return s, refers, nil
		}
		s.Type = kind
		switch word {
		case wordFormat:
			refers = true
			s.Options = slices.Clone(s.Options)
			texts := []*string{&s.Source, &s.Target}
			for i := range s.Options {
				texts = append(texts, &s.Options[i])
			}
			for _, text := range texts {
				if *text, err = fill(*text, earlier); err != nil {
					return s, false, err
				}
			}
		case wordMkdir:
			refers = true
			if err := takeDirs(&s, len(earlier)); err != nil {
				return s, false, err
			}
		default:
			return s, false, fmt.Errorf("containerd's mount manager has to do the work of %q first; this shim does that of %s and %s: %w",
				word, wordFormat, wordMkdir, errdefs.ErrNotImplemented)
		}
	}
}

// fill replaces the words {{ … }} of a text.
func fill(text string, earlier []*types.Mount) (string, error) {
	var filled strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{{")
		filled.WriteString(before)
		if !found {
			return filled.String(), nil
		}
		words, after, closed := strings.Cut(rest, "}}")
		value, ok := valueOf(strings.Fields(words), earlier)
		if !closed || !ok {
			return "", fmt.Errorf("%q names nothing of the %d mounts before it: %w", "{{"+rest, len(earlier), errdefs.ErrInvalidArgument)
		}
		filled.WriteString(value)
		text = after
	}
}

// valueOf returns what stands for words such as {"mount", "0"}.
func valueOf(words []string, earlier []*types.Mount) (value string, ok bool) {
	if len(words) == 0 {
		return "", false
	}
	var numbers []int
	for _, word := range words[1:] {
		n, err := strconv.Atoi(word)
		if err != nil || n < 0 || n >= len(earlier) {
			return "", false
		}
		numbers = append(numbers, n)
	}
	if words[0] == overlay && len(numbers) == 2 {
		first, last := numbers[0], numbers[1]
		places := []string{strconv.Itoa(first)}
		for first != last {
			if first < last {
				first++
			} else {
				first--
			}
			places = append(places, strconv.Itoa(first))
		}
		return strings.Join(places, ":"), true
	}
	if len(numbers) != 1 {
		return "", false
	}
	m := earlier[numbers[0]]
	switch words[0] {
	case "mount":
		return strconv.Itoa(numbers[0]), true
	case "source":
		return m.Source, true
	case "target":
		return m.Target, true
	default:
		return "", false
	}
}

// takeDirs moves the directories that are to be made from the options to Dirs. They are in one of some earlier mounts.
func takeDirs(s *abi.Mount, earlier int) error {
	var rest []string
	for _, option := range s.Options {
		value, found := strings.CutPrefix(option, mkdirOption)
		if !found {
			rest = append(rest, option)
			continue
		}
		path, mode, found := strings.Cut(value, ":")
		d := abi.Dir{Path: path, Mode: 0o700}
		if found {
			n, err := strconv.ParseUint(mode, 8, 32)
			if err != nil || n > 0o777 {
				return fmt.Errorf("option %q: %q is no mode: %w", option, mode, errdefs.ErrInvalidArgument)
			}
			d.Mode = uint32(n)
		}
		if !abi.InMount(path) || earlier == 0 {
			return fmt.Errorf("option %q: only directories of the mounts before it are made: %w", option, errdefs.ErrNotImplemented)
		}
		s.Dirs = append(s.Dirs, d)
	}
	s.Options = rest
	return nil
}
