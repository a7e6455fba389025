package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/rtnetlink"
)

// priority is that of our filters, by which they are found again. Filters of other programs may come
// before them. holding is that of filters that send the frames of a link elsewhere while its machine is not ready.
const (
	priority = 0x726b
	holding  = priority - 1
)

// Numbers of linux/pkt_sched.h, linux/pkt_cls.h and linux/tc_act that golang.org/x/sys/unix does not
// have.
const (
	sizeofTcMsg = 20

	qdiscHandle = 0xffff0000 // of clsact and of ingress
	qdiscParent = 0xfffffff1
	ingress     = 0xfffffff2 // the parent of a filter for received frames

	tcaU32Sel      = 5
	tcaU32Act      = 7
	tcaActKind     = 1
	tcaActOptions  = 2
	tcaMirredParms = 2
	u32Terminal    = 1
	actStolen      = 4
	egressRedirect = 1
	sizeofMirred   = 28 // struct tc_mirred
	mirredIfindex  = 24 // offset in it
)

// mirror sends all frames that a link receives to another link, which sends them. Until unmirror is called with
// holding, they go to a third link, unless hold is 0. If the filter of an earlier machine is there, whose tap is
// gone, it is replaced.
func mirror(conn *rtnetlink.Conn, from, to, hold uint32) error {
	qdisc := rtnetlink.AppendAttribute(tcBody(from, qdiscHandle, qdiscParent, 0), unix.TCA_KIND, []byte("clsact\x00"))
	err := conn.Request(unix.RTM_NEWQDISC, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, qdisc, nil)
	if err != nil && !errors.Is(err, unix.EEXIST) { // clsact or ingress; a filter is added to either
		return fmt.Errorf("add a qdisc of tc: %w", err)
	}
	if there, err := mirrored(conn, from); err != nil {
		return err
	} else if there != 0 {
		return errors.New("another machine has taken it over")
	}
	for _, of := range []uint32{priority, holding} {
		if err := unmirror(conn, from, of); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove the filter of an earlier machine: %w", err)
		}
	}
	if hold != 0 {
		if err := redirect(conn, from, hold, holding); err != nil {
			return err
		}
	}
	return redirect(conn, from, to, priority)
}

func redirect(conn *rtnetlink.Conn, from, to, priority uint32) error {
	filter := rtnetlink.AppendAttribute(filterBody(from, priority), unix.TCA_KIND, []byte("u32\x00"))
	filter = rtnetlink.AppendAttribute(filter, unix.TCA_OPTIONS|unix.NLA_F_NESTED, redirectAll(to))
	if err := conn.Request(unix.RTM_NEWTFILTER, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, filter, nil); err != nil {
		return fmt.Errorf("add a filter of tc: %w", err)
	}
	return nil
}

// redirectAll is the options of a filter u32 that matches every frame and redirects it.
func redirectAll(to uint32) []byte {
	selector := make([]byte, 16+16) // struct tc_u32_sel with one key, whose mask and value are 0
	selector[0], selector[2] = u32Terminal, 1
	mirred := make([]byte, sizeofMirred)
	binary.NativeEndian.PutUint32(mirred[8:], actStolen)
	binary.NativeEndian.PutUint32(mirred[20:], egressRedirect)
	binary.NativeEndian.PutUint32(mirred[mirredIfindex:], to)
	action := rtnetlink.AppendAttribute(nil, tcaActKind, []byte("mirred\x00"))
	action = rtnetlink.AppendAttribute(action, tcaActOptions|unix.NLA_F_NESTED, rtnetlink.AppendAttribute(nil, tcaMirredParms, mirred))
	options := rtnetlink.AppendAttribute(nil, tcaU32Sel, selector)
	return rtnetlink.AppendAttribute(options, tcaU32Act|unix.NLA_F_NESTED, rtnetlink.AppendAttribute(nil, 1|unix.NLA_F_NESTED, action))
}

// mirrored returns the index of the link to which our filter of a link redirects. It is 0 if there is
// no filter, or if that link is gone.
func mirrored(conn *rtnetlink.Conn, from uint32) (to uint32, err error) {
	seen := 0
	err = conn.Dump(unix.RTM_GETTFILTER, tcBody(from, 0, ingress, 0), func(m syscall.NetlinkMessage) error {
		if seen++; seen > maxSeen {
			return fmt.Errorf("the link has more than %d filters", maxSeen)
		}
		if len(m.Data) < sizeofTcMsg || number(m.Data[16:20])>>16 != priority {
			return nil
		}
		options := find(m.Data[sizeofTcMsg:], unix.TCA_OPTIONS)
		action := find(find(options, tcaU32Act), 1)
		if parms := find(find(action, tcaActOptions), tcaMirredParms); len(parms) >= sizeofMirred {
			to = number(parms[mirredIfindex : mirredIfindex+4])
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("list the filters of tc: %w", err)
	}
	return to, nil
}

// unmirror removes the filter of a link with a priority.
func unmirror(conn *rtnetlink.Conn, from, priority uint32) error {
	return conn.Request(unix.RTM_DELTFILTER, unix.NLM_F_ACK, filterBody(from, priority), nil)
}

// filterBody is the head of a request about our filter of a link.
func filterBody(link, priority uint32) []byte {
	everything := uint32(unix.ETH_P_ALL<<8) & 0xffff // in network byte order
	return tcBody(link, 0, ingress, priority<<16|everything)
}

// tcBody is a struct tcmsg.
func tcBody(link, handle, parent, info uint32) []byte {
	b := make([]byte, 4, 256)
	for _, n := range []uint32{link, handle, parent, info} {
		b = appendNumber(b, n)
	}
	return b
}

func appendNumber(b []byte, n uint32) []byte { return binary.NativeEndian.AppendUint32(b, n) }
