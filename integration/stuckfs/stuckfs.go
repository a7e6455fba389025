// Package stuckfs is a file system whose unmount hangs in the kernel until a test releases it,
// like that of a disk or server that does not answer any more.
//
// It is a FUSE file system of a block device (fuseblk). Only the unmount of that type waits for
// an answer of its server, which is in this process. The file system contains nothing but its
// root directory.
package stuckfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Opcodes of the protocol, as in linux/fuse.h.
const (
	opForget      = 2
	opGetattr     = 3
	opStatfs      = 17
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opDestroy     = 38
	opBatchForget = 42
)

const (
	inHeader  = 40
	outHeader = 16
	blockSize = 4096
)

// FS is a mounted stuckfs.
type FS struct {
	device  int      // /dev/fuse; no os.File, because its poller must not see it before the mount
	wake    [2]int   // a pipe that ends with Close
	loop    *os.File // the block device
	served  chan struct{}
	stuck   chan struct{}
	release chan struct{}
	once    sync.Once
}

// Mount mounts a stuckfs on dir. The caller must call Close. The error is ENOENT or ENODEV if
// the machine has no FUSE or no loop devices.
func Mount(dir string) (_ *FS, err error) {
	f := &FS{device: -1, wake: [2]int{-1, -1}, served: make(chan struct{}), stuck: make(chan struct{}), release: make(chan struct{})}
	defer func() {
		if err != nil {
			f.closeFiles()
		}
	}()
	if f.device, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	if err := unix.Pipe2(f.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	if f.loop, err = attachLoop(filepath.Dir(dir)); err != nil {
		return nil, fmt.Errorf("attach a loop device: %w", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,blksize=%d", f.device, blockSize)
	if err := unix.Mount(f.loop.Name(), dir, "fuseblk", unix.MS_RDONLY, options); err != nil {
		return nil, fmt.Errorf("mount fuseblk: %w", err)
	}
	go f.serve()
	return f, nil
}

// Stuck is closed when the last mount of the file system was unmounted, and the unmount hangs.
func (f *FS) Stuck() <-chan struct{} { return f.stuck }

// Release lets the unmount go on.
func (f *FS) Release() { f.once.Do(func() { close(f.release) }) }

// Close ends the server. The unmount that hangs then returns, and remaining mounts no longer
// work.
func (f *FS) Close() {
	f.Release()
	_ = unix.Close(f.wake[1])
	f.wake[1] = -1
	<-f.served
	f.closeFiles()
}

func (f *FS) closeFiles() {
	for _, fd := range []int{f.device, f.wake[0], f.wake[1]} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	if f.loop != nil {
		f.loop.Close()
	}
}

// attachLoop makes a block device of a small, unlinked file. The device is removed with its
// last user.
func attachLoop(dir string) (*os.File, error) {
	backing, err := os.CreateTemp(dir, "stuckfs-")
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	defer os.Remove(backing.Name())
	if err := backing.Truncate(16 * blockSize); err != nil {
		return nil, err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &unix.LoopConfig{
			Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR},
		})
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) { // another process was quicker
			return nil, err
		}
	}
}

// serve answers the kernel until the file system is unmounted or Close is called.
func (f *FS) serve() {
	defer close(f.served)
	buf := make([]byte, 1<<20)
	for {
		ready := []unix.PollFd{{Fd: int32(f.device), Events: unix.POLLIN}, {Fd: int32(f.wake[0])}}
		if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) || ready[1].Revents != 0 {
			return
		}
		n, err := unix.Read(f.device, buf)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOENT): // ENOENT: the kernel has withdrawn the request
			continue
		case err != nil || n < inHeader: // the file system was unmounted
			return
		}
		op, unique := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint64(buf[8:])
		if op == opForget || op == opBatchForget {
			continue
		}
		body, errno := f.answer(op, buf[inHeader:n])
		if _, err := unix.Write(f.device, reply(unique, errno, body)); err != nil && !errors.Is(err, unix.ENOENT) {
			return
		}
	}
}

func reply(unique uint64, errno unix.Errno, body []byte) []byte {
	out := make([]byte, outHeader, outHeader+len(body))
	binary.NativeEndian.PutUint32(out, uint32(outHeader+len(body)))
	binary.NativeEndian.PutUint32(out[4:], uint32(-int32(errno)))
	binary.NativeEndian.PutUint64(out[8:], unique)
	return append(out, body...)
}

func (f *FS) answer(op uint32, request []byte) (body []byte, errno unix.Errno) {
	switch op {
	case opInit:
		body = make([]byte, 64)                             // struct fuse_init_out
		copy(body, request[:4])                             // major
		binary.NativeEndian.PutUint32(body[4:], 31)         // minor: this program needs only older features
		binary.NativeEndian.PutUint32(body[20:], blockSize) // max_write
		return body, 0
	case opGetattr:
		body = make([]byte, 16+88)                                      // struct fuse_attr_out
		binary.NativeEndian.PutUint64(body[16:], 1)                     // ino
		binary.NativeEndian.PutUint32(body[16+60:], unix.S_IFDIR|0o755) // mode
		binary.NativeEndian.PutUint32(body[16+64:], 2)                  // nlink
		return body, 0
	case opStatfs:
		return make([]byte, 80), 0
	case opOpendir:
		return make([]byte, 16), 0
	case opReaddir, opReleasedir:
		return nil, 0
	case opDestroy:
		close(f.stuck)
		<-f.release
		return nil, 0
	}
	return nil, unix.ENOSYS
}
