package conformance

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// values are the values that checks ask a stage1 for. They follow from a seed, so that a stage1
// cannot be certified by knowing them, and a verification can be repeated. None is zero, and no
// two of a kind are equal.
type values struct {
	program string // name of the kit's program in the roots of apps

	user, group, otherUser, otherGroup uint32
	groups                             []uint32 // additional ones of a program, in rising order
	appGroup                           uint32   // additional one of an app whose exec has groups
	umask, appMask                     uint32
	score, appScore                    int
	capabilities                       [2]capability
	rlimits                            [2]rlimit
	appLimit                           uint64 // of the first of rlimits
	nice                               int32
	ioPriority                         int

	hostname, domainname, sandboxName string
	environment                       string // a variable, NAME=VALUE
	argument, label, metadata         string
	data, text                        string // path of a directory in the root, and what its file has
	offset                            int64  // of a clock, in seconds
	sysctl, sysctlValue               string
	device                            specs.LinuxDevice
	size                              string // of a tmpfs
	owner, ownerGroup                 uint32 // of an id-mapped file
	mapped                            uint32 // host's id of root in a user namespace

	deniedCall, otherCall           string // system calls that filters are about
	errnoOfRule, errnoOfArgument    uint
	maskedArgument, matchedArgument uint64

	shares, quota, period, burst, pids uint64
	amount                             uint64 // of other limits, in their units
	allowed, denied                    string // paths of devices
}

// capability is a capability with its number.
type capability struct {
	name   string
	number int
}

// rlimit is a resource limit, with its name and unit in /proc/PID/limits.
type rlimit struct {
	kind, name, unit string
	soft, hard       uint64
}

// spec returns the limit as the spec has it.
func (r *rlimit) spec() specs.POSIXRlimit {
	return specs.POSIXRlimit{Type: r.kind, Hard: r.hard, Soft: r.soft}
}

func (r *rlimit) fact() fact {
	return is("limits "+r.name, strings.TrimSpace(fmt.Sprintf("%d %d %s", r.soft, r.hard, r.unit)))
}

// usualName is the name of the kit's program without a seed, as the documents have it.
const usualName = "stage1-verify-app"

// drawnLetters is how many letters of a drawn program name are random. Those after them follow
// from them, so that the program recognises itself.
const drawnLetters = 8

const letters = "abcdefghijklmnopqrstuvwxyz"

// lettersFor returns the end of a program name that begins with these letters.
func lettersFor(begin string) string {
	sum := crc32.ChecksumIEEE([]byte(begin))
	end := make([]byte, 4)
	for i := range end {
		end[i] = letters[sum%uint32(len(letters))]
		sum /= uint32(len(letters))
	}
	return string(end)
}

// isProgram reports whether a path is that of a kit's program, of any seed.
func isProgram(path string) bool {
	name := filepath.Base(path)
	return name == usualName || len(name) > drawnLetters && name[drawnLetters:] == lettersFor(name[:drawnLetters])
}

// draw returns the values of a seed. With seed 0, the program has its usual name.
func draw(seed uint32) *values {
	d := drawer{rand.New(rand.NewPCG(uint64(seed), 0x726b74))}
	v := &values{program: d.word(drawnLetters)}
	v.program += lettersFor(v.program)
	if seed == 0 {
		v.program = usualName
	}
	d.identity(v)
	d.process(v)
	d.names(v)
	d.kernel(v)
	d.limits(v)
	return v
}

// drawer draws values.
type drawer struct{ *rand.Rand }

// between returns a number from least to most.
func (d drawer) between(least, most uint32) uint32 { return least + d.Uint32N(most-least+1) }

func (d drawer) word(n int) string {
	w := make([]byte, n)
	for i := range w {
		w[i] = letters[d.IntN(len(letters))]
	}
	return string(w)
}

// distinct returns n different numbers from least to most.
func (d drawer) distinct(n int, least, most uint32) []uint32 {
	var all []uint32
	for len(all) < n {
		if next := d.between(least, most); !slices.Contains(all, next) {
			all = append(all, next)
		}
	}
	return all
}

func (d drawer) identity(v *values) {
	ids := d.distinct(9, 1001, 60000)
	v.user, v.group, v.otherUser, v.otherGroup, v.appGroup, v.owner, v.ownerGroup = ids[0], ids[1], ids[2], ids[3], ids[4], ids[5], ids[6]
	v.groups = ids[7:]
	slices.Sort(v.groups)
	masks := d.distinct(2, 0o23, 0o76) // and so not the usual 022
	v.umask, v.appMask = masks[0], masks[1]
	v.mapped = 65536 * d.between(2, 1000)
}

func (d drawer) process(v *values) {
	scores := d.distinct(2, 1, 999)
	v.score, v.appScore = int(scores[0]), int(scores[1])
	all := []capability{
		{"CAP_CHOWN", unix.CAP_CHOWN}, {"CAP_FOWNER", unix.CAP_FOWNER}, {"CAP_FSETID", unix.CAP_FSETID}, {"CAP_KILL", unix.CAP_KILL},
		{"CAP_SETGID", unix.CAP_SETGID}, {"CAP_SETUID", unix.CAP_SETUID}, {"CAP_NET_BIND_SERVICE", unix.CAP_NET_BIND_SERVICE},
		{"CAP_NET_RAW", unix.CAP_NET_RAW}, {"CAP_SYS_CHROOT", unix.CAP_SYS_CHROOT}, {"CAP_AUDIT_WRITE", unix.CAP_AUDIT_WRITE},
	}
	for i, n := range d.Perm(len(all))[:2] {
		v.capabilities[i] = all[n]
	}
	limits := []rlimit{
		{kind: "RLIMIT_CORE", name: "Max core file size", unit: "bytes"}, {kind: "RLIMIT_SIGPENDING", name: "Max pending signals", unit: "signals"},
		{kind: "RLIMIT_LOCKS", name: "Max file locks", unit: "locks"}, {kind: "RLIMIT_MSGQUEUE", name: "Max msgqueue size", unit: "bytes"},
	}
	for i, n := range d.Perm(len(limits))[:2] {
		v.rlimits[i] = limits[n]
		v.rlimits[i].soft = uint64(d.between(100, 4000))
		v.rlimits[i].hard = uint64(d.between(4001, 8000))
	}
	v.appLimit = uint64(d.between(8100, 8900))
	v.nice = int32(d.between(1, 18))
	v.ioPriority = int(d.between(5, 7))
}

func (d drawer) names(v *values) {
	v.hostname, v.domainname, v.sandboxName = d.word(9), d.word(6)+".example", d.word(10)
	v.environment = "VERIFY_" + strings.ToUpper(d.word(5)) + "=" + d.word(4) + " " + d.word(3) + "=" + d.word(2)
	v.argument, v.label, v.metadata = d.word(4)+" "+d.word(5), d.word(8), d.word(8)
	v.data, v.text = "/"+d.word(7), d.word(12)
}

func (d drawer) kernel(v *values) {
	v.offset = int64(d.between(1000, 900000))
	settings := []string{"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.shmmni"}
	v.sysctl, v.sysctlValue = settings[d.IntN(len(settings))], fmt.Sprint(d.between(1000, 4000))
	mode := os.FileMode(0o600 | d.between(0o1, 0o77))
	if mode == 0o666 { // the usual one
		mode = 0o640
	}
	owner := d.distinct(2, 1001, 60000)
	minors := []int64{3, 5, 7} // null, zero and full
	v.device = specs.LinuxDevice{
		Path: "/dev/" + d.word(6), Type: "c", Major: 1, Minor: minors[d.IntN(len(minors))], FileMode: &mode, UID: &owner[0], GID: &owner[1],
	}
	v.size = fmt.Sprintf("%dk", 64*d.between(2, 9))
	calls := d.Perm(2)
	names := []string{"getsid", "getpgid"}
	v.deniedCall, v.otherCall = names[calls[0]], names[calls[1]]
	// No system call that is made here returns these errors by itself.
	errors := []unix.Errno{unix.EPROTO, unix.EMULTIHOP, unix.EBADMSG, unix.ENOTUNIQ, unix.EL2HLT, unix.EXFULL}
	chosen := d.Perm(len(errors))
	v.errnoOfRule, v.errnoOfArgument = uint(errors[chosen[0]]), uint(errors[chosen[1]])
	v.maskedArgument, v.matchedArgument = 0xff, uint64(d.between(2, 250))
}

func (d drawer) limits(v *values) {
	v.shares = uint64(d.between(200, 900))
	v.period = 1000 * uint64(d.between(40, 90))
	v.quota = v.period * uint64(d.between(15, 30)) / 100
	v.burst = v.quota / uint64(d.between(2, 9))
	v.pids = uint64(d.between(40, 90))
	v.amount = uint64(d.between(101, 900))
	v.allowed, v.denied = "/dev/"+d.word(7), "/dev/"+d.word(8)
}

// inRoot returns the path of the kit's program in the root of an app.
func (v *values) inRoot() string { return "/bin/" + v.program }

// mask returns capabilities as /proc/PID/status has them.
func mask(all ...capability) string {
	bits := 0
	for _, c := range all {
		bits |= 1 << c.number
	}
	return fmt.Sprintf("%016x", bits)
}

// errnoName returns the name of a kernel error.
func errnoName(errno uint) string { return unix.ErrnoName(unix.Errno(errno)) }
