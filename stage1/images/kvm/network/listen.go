package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Listener accepts every TCP connection that a process makes in the namespace to an address of the
// namespace, whatever the port: the LocalAddr of a connection is the address that was dialed. Frames
// from outside are the machine's and are not seen here.
type Listener struct {
	net.Listener
	link *os.File // ends with the descriptor: the kernel then asks the program no more
}

// Listen begins to listen. The kernel asks a program of a dozen instructions for the socket of a new
// connection (sk_lookup, since Linux 5.9), and that always names this one.
func (n *Network) Listen() (*Listener, error) {
	l := &Listener{}
	var config net.ListenConfig
	config.SetMultipathTCP(false) // such a socket cannot be in a map
	err := n.Do(func() (err error) {
		l.Listener, err = config.Listen(context.Background(), "tcp", ":0") // of both families, if there is IPv6
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in the network namespace: %w", err)
	}
	if l.link, err = n.catch(l.Listener.(*net.TCPListener)); err != nil {
		l.Listener.Close()
		return nil, fmt.Errorf("direct connections in the network namespace to a listener: %w", err)
	}
	return l, nil
}

// Close ends the listening. Connections that were accepted stay.
func (l *Listener) Close() error { return errors.Join(l.link.Close(), l.Listener.Close()) }

// Numbers of bpf(2).
const (
	mapCreate, mapUpdate, progLoad, linkCreate = 0, 2, 5, 28

	typeSockmap    = 15
	typeSkLookup   = 30
	attachSkLookup = 36

	helperMapLookup, helperSkRelease, helperSkAssign = 1, 86, 124
)

// catch makes the program with its socket, and attaches it to the namespace.
func (n *Network) catch(l *net.TCPListener) (*os.File, error) {
	sockets, err := bpf(mapCreate, struct{ kind, key, value, entries uint32 }{typeSockmap, 4, 4, 1})
	if err != nil {
		return nil, fmt.Errorf("make a map of sockets: %w", err)
	}
	defer sockets.Close()
	var pin runtime.Pinner // the kernel gets addresses as numbers
	defer pin.Unpin()
	address := func(b *byte) uint64 {
		pin.Pin(b)
		return uint64(uintptr(unsafe.Pointer(b)))
	}
	key, socket := make([]byte, 4), make([]byte, 4)
	err = proc.Control(l, func(fd int) error {
		binary.NativeEndian.PutUint32(socket, uint32(fd))
		_, err := bpf(mapUpdate, struct {
			fd, _             uint32
			key, value, flags uint64
		}{fd: uint32(sockets.Fd()), key: address(&key[0]), value: address(&socket[0])})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("add the listener to the map: %w", err)
	}
	code, license := program(int32(sockets.Fd())), []byte("Apache-2.0\x00")
	p, err := bpf(progLoad, struct {
		kind, count       uint32
		code, license     uint64
		level, size       uint32
		log               uint64
		version, flags    uint32
		name              [16]byte
		ifindex, expected uint32
	}{kind: typeSkLookup, count: uint32(len(code) / 8), code: address(&code[0]), license: address(&license[0]), expected: attachSkLookup})
	if err != nil {
		return nil, fmt.Errorf("load the program: %w", err)
	}
	defer p.Close()
	link, err := bpf(linkCreate, struct{ program, target, kind, flags uint32 }{uint32(p.Fd()), uint32(n.namespace.Fd()), attachSkLookup, 0})
	if err != nil {
		err = fmt.Errorf("attach the program: %w", err)
	}
	return link, err
}

// program returns the program, which is
//
//	if (ctx->protocol == IPPROTO_TCP && (sk = bpf_map_lookup_elem(sockets, &zero))) {
//		bpf_sk_assign(ctx, sk, 0);
//		bpf_sk_release(sk);
//	}
//	return SK_PASS;
func program(sockets int32) (code []byte) {
	const protocol = 12 // offset in struct bpf_sk_lookup
	one := func(op, registers byte, offset int16, value int32) {
		code = append(code, op, registers)
		code = binary.NativeEndian.AppendUint16(code, uint16(offset))
		code = binary.NativeEndian.AppendUint32(code, uint32(value))
	}
	const (
		load   = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
		store  = unix.BPF_ST | unix.BPF_MEM | unix.BPF_W
		wide   = unix.BPF_LD | unix.BPF_IMM | 0x18 // of 64 bits, in two instructions
		move   = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_X
		set    = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K
		add    = unix.BPF_ALU64 | unix.BPF_ADD | unix.BPF_K
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		differ = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_K
		call   = unix.BPF_JMP | unix.BPF_CALL
		exit   = unix.BPF_JMP | unix.BPF_EXIT
	)
	// The second argument has two registers: the source, and the destination in the low half.
	one(move, 0x16, 0, 0)                   //  0: r6 = ctx
	one(load, 0x12, protocol, 0)            //  1: r2 = ctx->protocol
	one(differ, 0x02, 14, unix.IPPROTO_TCP) //  2: if r2 is not TCP, to 17
	one(store, 0x0a, -4, 0)                 //  3: zero
	one(move, 0xa2, 0, 0)                   //  4: r2 = stack
	one(add, 0x02, 0, -4)                   //  5: r2 = &zero
	one(wide, 0x11, 0, sockets)             //  6: r1 = sockets, a descriptor
	one(0, 0, 0, 0)                         //  7: its second half
	one(call, 0, 0, helperMapLookup)
	one(equal, 0x00, 7, 0) //  9: if there is none, to 17
	one(move, 0x07, 0, 0)  // 10: r7 = sk
	one(move, 0x61, 0, 0)  // 11: r1 = ctx
	one(move, 0x72, 0, 0)  // 12: r2 = sk
	one(set, 0x03, 0, 0)   // 13: r3 = 0
	one(call, 0, 0, helperSkAssign)
	one(move, 0x71, 0, 0) // 15: r1 = sk
	one(call, 0, 0, helperSkRelease)
	one(set, 0x00, 0, 1) // 17: r0 = SK_PASS
	one(exit, 0, 0, 0)
	return code
}

// bpf calls bpf(2). The file is nil for a command that returns none.
func bpf[A any](command int, attr A) (*os.File, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return nil, errno
	}
	if command == mapUpdate {
		return nil, nil
	}
	return os.NewFile(fd, "bpf"), nil // close-on-exec, as the kernel makes it
}
