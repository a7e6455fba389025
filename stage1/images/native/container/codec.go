package container

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
)

// codec encodes the plan of a process, or decodes it. Each type has one method for both
// directions: the method lists the fields in order, and the codec either appends them or
// sets them.
//
// encoding/json is not used, because its first use costs a new process about half a
// millisecond, as much as all of an app's mounts. The same binary encodes and decodes,
// so the encoding needs no version.
type codec struct {
	b       []byte
	reading bool
	err     error
}

var errTruncated = errors.New("the plan of the process is not whole")

func encodeConfig(c *config) ([]byte, error) {
	w := &codec{}
	c.code(w)
	return w.b, w.err
}

func decodeConfig(b []byte) (*config, error) {
	r := &codec{b: b, reading: true}
	c := &config{}
	c.code(r)
	if r.err == nil && len(r.b) > 0 {
		r.err = errTruncated
	}
	return c, r.err
}

type integer interface {
	~int | ~int32 | ~uint | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// number codes an integer. A negative one takes ten bytes.
func number[T integer](c *codec, v *T) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, uint64(*v))
		return
	}
	u, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail()
		return
	}
	c.b = c.b[n:]
	if *v = T(u); uint64(*v) != u {
		c.fail()
	}
}

func (c *codec) fail() {
	c.b, c.err = nil, errTruncated
}

// length codes the number of items that follow. It fails if there are fewer bytes than
// items, because each item takes at least one.
func (c *codec) length(n int) int {
	number(c, &n)
	if n < 0 || c.reading && n > len(c.b) {
		c.fail()
		return 0
	}
	return n
}

func (c *codec) bytes(v *[]byte) {
	n := c.length(len(*v))
	if !c.reading {
		c.b = append(c.b, *v...)
	} else if n > 0 {
		*v, c.b = c.b[:n:n], c.b[n:]
	}
}

func (c *codec) text(v *string) {
	b := []byte(*v)
	c.bytes(&b)
	if c.reading {
		*v = string(b)
	}
}

func (c *codec) flag(v *bool) {
	n := 0
	if *v {
		n = 1
	}
	number(c, &n)
	*v = n != 0
}

func list[T any](c *codec, v *[]T, item func(*codec, *T)) {
	n := c.length(len(*v))
	if c.reading && n > 0 {
		*v = make([]T, n)
	}
	for i := range *v {
		item(c, &(*v)[i])
	}
}

func optional[T any](c *codec, v **T, item func(*codec, *T)) {
	there := *v != nil
	c.flag(&there)
	if !there {
		return
	}
	if c.reading {
		*v = new(T)
	}
	item(c, *v)
}

func (c *codec) texts(v *[]string) { list(c, v, (*codec).text) }

// document codes a value as JSON. It is for rarely used types of other packages.
func document[T any](c *codec, v *T) {
	var b []byte
	if !c.reading {
		b, c.err = plainjson.Encode(v)
	}
	c.bytes(&b)
	if c.reading && c.err == nil {
		c.err = plainjson.Decode(b, v)
	}
}

func (v *config) code(c *codec) {
	c.flag(&v.Exec)
	c.flag(&v.UserNamespace)
	list(c, &v.Cgroups, number[int])
	c.flag(&v.CgroupNamespace)
	c.flag(&v.Loopback)
	c.flag(&v.NetDevices)
	c.flag(&v.RuntimeHooks)
	c.text(&v.Keyring)
	number(c, &v.Chroot)
	optional(c, &v.Rootfs, func(c *codec, v *rootfs) {
		c.text(&v.Path)
		number(c, &v.File)
		number(c, &v.Propagation)
		c.flag(&v.Readonly)
		c.flag(&v.NoPivotRoot)
		c.flag(&v.Chroot)
		c.flag(&v.Populate)
	})
	list(c, &v.Mounts, func(c *codec, v *mount) { v.code(c) })
	list(c, &v.Devices, func(c *codec, v *device) {
		c.text(&v.Path)
		number(c, &v.Mode)
		number(c, &v.Dev)
		number(c, &v.UID)
		number(c, &v.GID)
		number(c, &v.File)
	})
	c.texts(&v.Masked)
	c.texts(&v.Readonly)
	c.text(&v.MountLabel)
	c.text(&v.Hostname)
	c.text(&v.Domainname)
	list(c, &v.Sysctl, func(c *codec, v *sysctl) {
		c.text(&v.Path)
		c.text(&v.Value)
	})
	optional(c, &v.Personality, number[uint32])
	optional(c, &v.MemoryPolicy, func(c *codec, v *memoryPolicy) {
		number(c, &v.Mode)
		list(c, &v.Nodes, number[int])
	})
	optional(c, &v.Hooks, document[hooks])
	c.flag(&v.Terminal)
	optional(c, &v.ConsoleSize, document)
	v.Process.code(c)
	c.bytes(&v.Seccomp)
	number(c, &v.SeccompFlags)
}

func (v *mount) code(c *codec) {
	c.text(&v.Destination)
	c.text(&v.Type)
	c.text(&v.Source)
	number(c, &v.Flags)
	c.text(&v.Data)
	number(c, &v.File)
	c.flag(&v.OnFile)
	list(c, &v.Propagation, number[uintptr])
	number(c, &v.Recursive.Attr_set)
	number(c, &v.Recursive.Attr_clr)
	c.flag(&v.CopyUp)
	c.flag(&v.ReadonlyEnd)
	list(c, &v.Cgroups, func(c *codec, v *hierarchy) {
		c.text(&v.Name)
		c.text(&v.Data)
		number(c, &v.File)
	})
}

func (v *process) code(c *codec) {
	c.texts(&v.Args)
	c.texts(&v.Env)
	c.flag(&v.NoHome)
	c.text(&v.Path)
	number(c, &v.Self.Dev)
	number(c, &v.Self.Ino)
	c.text(&v.Cwd)
	number(c, &v.UID)
	number(c, &v.GID)
	list(c, &v.Groups, number[uint32])
	number(c, &v.Umask)
	for _, set := range []*uint64{&v.Caps.Bounding, &v.Caps.Effective, &v.Caps.Inheritable, &v.Caps.Permitted, &v.Caps.Ambient} {
		number(c, set)
	}
	list(c, &v.Rlimits, func(c *codec, v *rlimit) {
		c.text(&v.Name)
		number(c, &v.Resource)
		number(c, &v.Soft)
		number(c, &v.Hard)
	})
	c.flag(&v.NoNewPrivileges)
	optional(c, &v.OOMScoreAdj, number[int])
	optional(c, &v.Scheduler, document[unix.SchedAttr])
	optional(c, &v.IOPriority, number[int])
	list(c, &v.InitialCPUs, number[int])
	list(c, &v.FinalCPUs, number[int])
	c.text(&v.AppArmor)
	c.text(&v.SELinux)
}
