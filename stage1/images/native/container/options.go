package container

import (
	"strings"

	"golang.org/x/sys/unix"
)

// mountOptions are the parsed options of a mount.
type mountOptions struct {
	flags       uintptr   // MS_* to set
	cleared     uintptr   // MS_* that the options turn off
	propagation []uintptr // MS_PRIVATE and similar flags, in order
	recSet      uint64    // MOUNT_ATTR_* to set for the whole tree
	recClear    uint64
	copyUp      bool
	idmap       bool
	ridmap      bool
	data        []string // all other options, for the filesystem itself
}

// flagOption is an option that sets or clears MS_* flags.
type flagOption struct {
	clear bool
	flag  uintptr
}

// The tables are results of functions and not variables, so that a process builds a table
// only if it needs it.

func flagOptions() map[string]flagOption {
	return map[string]flagOption{
		"async":         {true, unix.MS_SYNCHRONOUS},
		"atime":         {true, unix.MS_NOATIME},
		"bind":          {false, unix.MS_BIND},
		"defaults":      {false, 0},
		"dev":           {true, unix.MS_NODEV},
		"diratime":      {true, unix.MS_NODIRATIME},
		"dirsync":       {false, unix.MS_DIRSYNC},
		"exec":          {true, unix.MS_NOEXEC},
		"iversion":      {false, unix.MS_I_VERSION},
		"lazytime":      {false, unix.MS_LAZYTIME},
		"loud":          {true, unix.MS_SILENT},
		"mand":          {false, unix.MS_MANDLOCK},
		"noatime":       {false, unix.MS_NOATIME},
		"nodev":         {false, unix.MS_NODEV},
		"nodiratime":    {false, unix.MS_NODIRATIME},
		"noexec":        {false, unix.MS_NOEXEC},
		"noiversion":    {true, unix.MS_I_VERSION},
		"nolazytime":    {true, unix.MS_LAZYTIME},
		"nomand":        {true, unix.MS_MANDLOCK},
		"norelatime":    {true, unix.MS_RELATIME},
		"nostrictatime": {true, unix.MS_STRICTATIME},
		"nosuid":        {false, unix.MS_NOSUID},
		"nosymfollow":   {false, unix.MS_NOSYMFOLLOW},
		"rbind":         {false, unix.MS_BIND | unix.MS_REC},
		"relatime":      {false, unix.MS_RELATIME},
		"remount":       {false, unix.MS_REMOUNT},
		"ro":            {false, unix.MS_RDONLY},
		"rw":            {true, unix.MS_RDONLY},
		"silent":        {false, unix.MS_SILENT},
		"strictatime":   {false, unix.MS_STRICTATIME},
		"suid":          {true, unix.MS_NOSUID},
		"symfollow":     {true, unix.MS_NOSYMFOLLOW},
		"sync":          {false, unix.MS_SYNCHRONOUS},
	}
}

func propagationOptions() map[string]uintptr {
	return map[string]uintptr{
		"private":     unix.MS_PRIVATE,
		"rprivate":    unix.MS_PRIVATE | unix.MS_REC,
		"slave":       unix.MS_SLAVE,
		"rslave":      unix.MS_SLAVE | unix.MS_REC,
		"shared":      unix.MS_SHARED,
		"rshared":     unix.MS_SHARED | unix.MS_REC,
		"unbindable":  unix.MS_UNBINDABLE,
		"runbindable": unix.MS_UNBINDABLE | unix.MS_REC,
	}
}

// ownOptions returns the options that the kernel does not have.
func ownOptions() map[string]func(*mountOptions) {
	return map[string]func(*mountOptions){
		"tmpcopyup": func(o *mountOptions) { o.copyUp = true },
		"idmap":     func(o *mountOptions) { o.idmap = true },
		"ridmap":    func(o *mountOptions) { o.idmap, o.ridmap = true, true },
	}
}

// optionParser has the tables, so that they are built once for all mounts.
type optionParser struct {
	flags       map[string]flagOption
	propagation map[string]uintptr
	own         map[string]func(*mountOptions)
}

func newOptionParser() *optionParser {
	return &optionParser{flagOptions(), propagationOptions(), ownOptions()}
}

// parse reads the options of one mount. As on mount(8)'s command line, a later option
// overrides an earlier one.
func (p *optionParser) parse(options []string) mountOptions {
	var o mountOptions
	for _, s := range options {
		if f, ok := p.flags[s]; ok {
			o.setFlag(f)
		} else if f, ok := p.propagation[s]; ok {
			o.propagation = append(o.propagation, f)
		} else if f, ok := p.recursive(s); ok {
			o.setRecursive(f)
		} else if set, ok := p.own[s]; ok {
			set(&o)
		} else if s != "" {
			o.data = append(o.data, s)
		}
	}
	return o
}

// recursive returns the option for a single mount that a word such as rnoexec applies to a
// whole tree. ok is false if the kernel has that flag only for filesystems and not for
// mounts.
func (p *optionParser) recursive(word string) (f flagOption, ok bool) {
	one, ok := strings.CutPrefix(word, "r")
	f = p.flags[one]
	return f, ok && f.flag&(mountFlags|atimeFlags) != 0
}

func (o *mountOptions) setFlag(f flagOption) {
	if f.clear {
		o.flags &^= f.flag
		o.cleared |= f.flag
		return
	}
	o.flags |= f.flag
	o.cleared &^= f.flag
}

func (o *mountOptions) setRecursive(f flagOption) {
	// The kinds of atime are a single field in the kernel. To change the field, all its
	// bits have to be cleared; a cleared field means relatime.
	attr := attributes(f.flag)
	mask := attr
	if f.flag&atimeFlags != 0 {
		mask = unix.MOUNT_ATTR__ATIME
	}
	o.recSet &^= mask
	o.recClear &^= mask
	if mask == unix.MOUNT_ATTR__ATIME {
		o.recClear |= mask
	}
	if f.clear {
		o.recClear |= mask
		return
	}
	o.recSet |= attr
}

// attributes translates the flags of a mount, as opposed to those of a filesystem, for
// mount_setattr(2).
func attributes(flags uintptr) (attr uint64) {
	for _, m := range []struct {
		flag uintptr
		attr uint64
	}{
		{unix.MS_RDONLY, unix.MOUNT_ATTR_RDONLY},
		{unix.MS_NOSUID, unix.MOUNT_ATTR_NOSUID},
		{unix.MS_NODEV, unix.MOUNT_ATTR_NODEV},
		{unix.MS_NOEXEC, unix.MOUNT_ATTR_NOEXEC},
		{unix.MS_NODIRATIME, unix.MOUNT_ATTR_NODIRATIME},
		{unix.MS_NOSYMFOLLOW, unix.MOUNT_ATTR_NOSYMFOLLOW},
	} {
		if flags&m.flag != 0 {
			attr |= m.attr
		}
	}
	switch { // a single field: the flag with the fewest updates takes precedence
	case flags&unix.MS_NOATIME != 0:
		attr |= unix.MOUNT_ATTR_NOATIME
	case flags&unix.MS_STRICTATIME != 0:
		attr |= unix.MOUNT_ATTR_STRICTATIME
	}
	return attr
}

const (
	// mountFlags and atimeFlags belong to a mount, all others to its filesystem.
	mountFlags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NODIRATIME | unix.MS_NOSYMFOLLOW
	atimeFlags = unix.MS_NOATIME | unix.MS_RELATIME | unix.MS_STRICTATIME
	// plainAttrs are the attributes that a bind mount with options resets unless the
	// options name them. `mount --bind -o` does the same with a remount.
	plainAttrs = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV |
		unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSYMFOLLOW
)

// bindAttr returns the attributes to change for a bind mount with these options. changes is
// false if the mount keeps all attributes of its source. attr also resets the attributes of
// plainAttrs that the options do not name. gentle resets nothing. It is used if flags of the
// source are locked (amongLockedMounts).
//
// Options of the filesystem, such as sync, have no effect on a bind mount, because it
// shares the filesystem with its source.
func (o *mountOptions) bindAttr() (attr, gentle unix.MountAttr, changes bool) {
	const structure = unix.MS_BIND | unix.MS_REC | unix.MS_REMOUNT
	if o.flags&^uintptr(structure) == 0 && o.cleared == 0 {
		return attr, gentle, false
	}
	set := attributes(o.flags)
	clear := attributes(o.cleared) &^ uint64(unix.MOUNT_ATTR__ATIME)
	if (o.flags|o.cleared)&uintptr(atimeFlags) != 0 {
		clear |= unix.MOUNT_ATTR__ATIME
	}
	gentle = unix.MountAttr{Attr_set: set, Attr_clr: clear}
	attr = unix.MountAttr{Attr_set: set, Attr_clr: clear | plainAttrs&^set}
	return attr, gentle, true
}

// addData joins options for the filesystem.
func addData(data string, more ...string) string {
	for _, m := range more {
		if m == "" {
			continue
		}
		if data != "" {
			data += ","
		}
		data += m
	}
	return data
}

// hasData reports whether data has a value for key.
func hasData(data, key string) bool {
	for _, d := range strings.Split(data, ",") {
		if strings.HasPrefix(d, key+"=") {
			return true
		}
	}
	return false
}
