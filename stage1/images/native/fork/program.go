package fork

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FileID identifies a file.
type FileID struct{ Dev, Ino uint64 }

// Program is a program that a process of an app executes, with the identity and the limits
// that it gets. The process does everything itself, as root of its user namespace, in the
// order of these fields. It looks at files of the app only after it has closed every
// descriptor except its Files.
type Program struct {
	First   *First // or nil, for an exec
	Label   *Label // or nil
	Keyring string // name of the session keyring to join, or ""
	// Terminal makes a terminal in the app's devpts, which takes the place of the Files and
	// becomes the controlling terminal. Size is its size, or nil.
	Terminal bool
	Size     *unix.Winsize

	// Home adds the home directory of UID to Env, from the app's /etc/passwd.
	Home            bool
	NoNewPrivileges bool
	Dir             string // working directory
	UID, GID        uint32 // also the owner of the Files, if they have owners
	Groups          []uint32
	Capabilities    Capabilities

	Paths       []string // the program is the first of these that can be executed
	Not         FileID   // and that is not this file
	Umask       uint32
	Limits      []Limit
	Filter      []byte // seccomp instructions, or nil
	FilterFlags uint
	Args, Env   []string
}

// Label is a value that a process writes to a file of its own in the host's procfs. A procfs of
// the app could be covered by other files. If the kernel has no file of the first name, the
// process writes to the second.
type Label struct {
	Proc  *os.File // the root of the procfs
	Names [2]string
	Value string
}

// Capabilities are sets of capabilities, as bit masks. What the process does not have is
// left out.
type Capabilities struct {
	Bounding, Effective, Inheritable, Permitted, Ambient uint64
}

// Limit is a limit of resources.
type Limit struct {
	Resource int
	unix.Rlimit
}

// room returns how much of a sheet the plan takes at most.
func (g *Program) room() int {
	n := 1024
	if g.Label != nil {
		n += room([]string{g.Label.Names[0], g.Label.Names[1], g.Label.Value})
	}
	if g.First != nil {
		n += g.First.room()
	}
	n += room([]string{g.Keyring, g.Dir}) + room(g.Paths) + room(g.Args) + room(g.Env)
	return n + len(g.Groups)*4 + len(g.Limits)*int(unsafe.Sizeof(Limit{})) + len(g.Filter)
}

// becoming is a Program prepared for the child.
type becoming struct {
	first   *making // or nil
	keyring *byte   // or nil

	labelled bool
	proc     int
	names    [2]*byte
	label    []byte

	terminal   bool
	terminals  *byte // /dev/pts
	multiplex  *byte // ptmx, in there
	terminalAt [2]unix.OpenHow
	sized      bool
	size       unix.Winsize
	unlock     int32
	fs         unix.Statfs_t

	message unix.Msghdr // with a descriptor for the parent
	part    unix.Iovec
	rights  struct {
		unix.Cmsghdr
		file int32
		_    int32
	}

	home       bool
	passwd     *byte
	noNew      bool
	dir        *byte
	opened     unix.OpenHow // for the working directory
	passwdOpen unix.OpenHow
	entered    bool // dir
	uid, gid   uint32
	groups     []uint32
	unmapped   bool // in a user namespace, in which the right to drop groups may be missing
	wanted     Capabilities
	keepsAdmin bool // until the filter is loaded
	early      bool // the filter allows the calls that follow prepare
	filtered   bool // the filter is loaded

	not    FileID
	paths  []*byte
	path   int // index of the one that can be executed
	umask  uint32
	limits []Limit
	filter *unix.SockFprog // or nil
	flags  uint

	header  unix.CapUserHeader
	caps    [2]unix.CapUserData
	stat    unix.Stat_t
	lines   passwdLines
	homeVar [len(homeName) + maxHome + 1]byte // the variable in the environment
	buf     [4096]byte
}

const (
	homeName = "HOME="
	maxHome  = 1024 // a longer one is a failure
)

// layProgram prepares a Program on a sheet.
func (l *plan) layProgram(g *Program, s *sheet, userNamespace bool) (err error) {
	b := &carve[becoming](s, 1)[0]
	l.program = b
	b.layMessage(l)
	if g.First != nil {
		if err := b.layFirst(g.First, s); err != nil {
			return err
		}
	}
	if g.Label != nil {
		b.labelled, b.proc = true, l.place(g.Label.Proc)
		for i, name := range g.Label.Names {
			if b.names[i], err = s.text("thread-self/" + name); err != nil {
				return fmt.Errorf("file of a label %q: %w", name, err)
			}
		}
		b.label = carve[byte](s, len(g.Label.Value))
		copy(b.label, g.Label.Value)
	}
	if g.Keyring != "" {
		if b.keyring, err = s.text(g.Keyring); err != nil {
			return fmt.Errorf("keyring %q: %w", g.Keyring, err)
		}
	}
	if g.Terminal {
		if err := b.layTerminal(g, s); err != nil {
			return err
		}
	}
	b.home, b.noNew = g.Home, g.NoNewPrivileges
	if b.passwd, err = s.text("/etc/passwd"); err != nil {
		return err
	}
	if b.dir, err = s.text(g.Dir); err != nil {
		return fmt.Errorf("working directory %q: %w", g.Dir, err)
	}
	b.opened = unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	b.passwdOpen = unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	b.uid, b.gid, b.unmapped = g.UID, g.GID, userNamespace
	b.groups = carve[uint32](s, len(g.Groups))
	copy(b.groups, g.Groups)
	b.wanted = g.Capabilities
	b.header.Version = unix.LINUX_CAPABILITY_VERSION_3
	b.not = g.Not
	if b.paths, err = s.texts(g.Paths); err != nil {
		return fmt.Errorf("paths of the program: %w", err)
	}
	b.paths = b.paths[:len(g.Paths)]
	b.umask = g.Umask
	b.limits = carve[Limit](s, len(g.Limits))
	copy(b.limits, g.Limits)
	if len(g.Filter) > 0 {
		filter := carve[byte](s, len(g.Filter))
		copy(filter, g.Filter)
		b.filter = &carve[unix.SockFprog](s, 1)[0]
		b.filter.Len = uint16(len(filter) / unix.SizeofSockFilter)
		b.filter.Filter = (*unix.SockFilter)(unsafe.Pointer(&filter[0]))
		b.flags = g.FilterFlags
		b.keepsAdmin = !g.NoNewPrivileges
		b.early = b.keepsAdmin && allows(g.Filter, callsAfterPrepare(g.Terminal))
	}
	if l.argv, err = s.texts(g.Args); err != nil {
		return fmt.Errorf("arguments of a program: %w", err)
	}
	env := g.Env
	if g.Home {
		env = append(slices.Clip(env), homeName)
	}
	if l.envv, err = s.texts(env); err != nil {
		return fmt.Errorf("environment of a program: %w", err)
	}
	if g.Home {
		copy(b.homeVar[:], homeName)
		l.envv[len(env)-1] = &b.homeVar[0]
		b.lines.uid, b.lines.home = g.UID, b.homeVar[len(homeName):len(b.homeVar)-1]
	}
	return nil
}
