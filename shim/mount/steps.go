package mount

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

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

// Step is a mount of a root whose type and options have no work of a mount manager.
type Step struct {
	*types.Mount
	Dirs []Dir // to make before it
}

// Dir is a directory of an earlier mount.
type Dir struct {
	Path string
	Mode os.FileMode
}

// Steps does the work of containerd's mount manager that needs no mount. Some of the mounts may refer to earlier
// ones: then the first ones are parts of the root, and each has a directory of its own, which place names by its
// number. It returns how many these are. The further mounts are made on the root.
func Steps(mounts []*types.Mount, place func(part int) string) (steps []Step, parts int, err error) {
	for i, m := range mounts {
		s, refers, err := step(m, mounts[:i], place)
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
func step(m *types.Mount, earlier []*types.Mount, place func(int) string) (s Step, refers bool, err error) {
	plain := &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options}
	s.Mount = plain
	for {
		word, kind, found := strings.Cut(plain.Type, "/")
		if !found {
			return s, refers, nil
		}
		plain.Type = kind
		switch word {
		case wordFormat:
			refers = true
			plain.Options = slices.Clone(plain.Options)
			texts := []*string{&plain.Source, &plain.Target}
			for i := range plain.Options {
				texts = append(texts, &plain.Options[i])
			}
			for _, text := range texts {
				if *text, err = fill(*text, earlier, place); err != nil {
					return s, false, err
				}
			}
		case wordMkdir:
			if err := s.takeDirs(len(earlier), place); err != nil {
				return s, false, err
			}
		default:
			return s, false, fmt.Errorf("containerd's mount manager has to do the work of %q first; this shim does that of %s and %s: %w",
				word, wordFormat, wordMkdir, errdefs.ErrNotImplemented)
		}
	}
}

// fill replaces the words {{ … }} of a text.
func fill(text string, earlier []*types.Mount, place func(int) string) (string, error) {
	var filled strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{{")
		filled.WriteString(before)
		if !found {
			return filled.String(), nil
		}
		words, after, closed := strings.Cut(rest, "}}")
		value, ok := valueOf(strings.Fields(words), earlier, place)
		if !closed || !ok {
			return "", fmt.Errorf("%q names nothing of the %d mounts before it: %w", "{{"+rest, len(earlier), errdefs.ErrInvalidArgument)
		}
		filled.WriteString(value)
		text = after
	}
}

// valueOf returns what stands for words such as {"mount", "0"}.
func valueOf(words []string, earlier []*types.Mount, place func(int) string) (value string, ok bool) {
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
		places := []string{place(first)}
		for first != last {
			if first < last {
				first++
			} else {
				first--
			}
			places = append(places, place(first))
		}
		return strings.Join(places, ":"), true
	}
	if len(numbers) != 1 {
		return "", false
	}
	m := earlier[numbers[0]]
	switch words[0] {
	case "mount":
		return place(numbers[0]), true
	case "source":
		return m.Source, true
	case "target":
		return m.Target, true
	default:
		return "", false
	}
}

// takeDirs moves the directories that are to be made from the options to Dirs.
func (s *Step) takeDirs(parts int, place func(int) string) error {
	var rest []string
	for _, option := range s.Options {
		value, found := strings.CutPrefix(option, mkdirOption)
		if !found {
			rest = append(rest, option)
			continue
		}
		path, mode, found := strings.Cut(value, ":")
		d := Dir{Path: path, Mode: 0o700}
		if found {
			n, err := strconv.ParseUint(mode, 8, 32)
			if err != nil || os.FileMode(n)&^os.ModePerm != 0 {
				return fmt.Errorf("option %q: %q is no mode: %w", option, mode, errdefs.ErrInvalidArgument)
			}
			d.Mode = os.FileMode(n)
		}
		if _, _, ok := within(path, parts, place); !ok {
			return fmt.Errorf("option %q: only directories of the mounts before it are made: %w", option, errdefs.ErrNotImplemented)
		}
		s.Dirs = append(s.Dirs, d)
	}
	s.Options = rest
	return nil
}

// within returns in which of the first parts a path is, and the path there.
func within(path string, parts int, place func(int) string) (part int, rest string, ok bool) {
	for n := range parts {
		rest, found := strings.CutPrefix(path, place(n))
		if found && (rest == "" || rest[0] == '/') {
			return n, strings.TrimLeft(rest, "/"), true
		}
	}
	return 0, "", false
}
