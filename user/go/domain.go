// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

package xrcrcv

// #include <stdlib.h>
// #include <infiniband/xrc_rcv.h>
import "C"

import (
	"context"
	"errors"
	"iter"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// A Domain is an XRC domain that this process has open. Registrations and event channels may
// outlive it, SRQs may not.
type Domain struct {
	object
	xrcd *C.struct_ibv_xrcd
}

// A Registration is a registration with a receive QP. Close ends it, and discards its unread
// events; it ends with its channel as well.
type Registration struct {
	object
	QPNum uint32 // senders connect to it
}

// RegisterOptions are those of a registration.
type RegisterOptions struct {
	Channel *EventChannel // of the domain; nil for no events
	Cookie  uint64        // is in each event
	Events  uint64        // bit n is that of events of type n; 0 for all
}

// AllocOptions are those of a new receive QP.
type AllocOptions struct {
	RegisterOptions
	Lifetime Lifetime
	Label    uint64 // is returned by queries
}

// An Adopted is a receive QP that [Domain.Adopt] has found: with a registration, or the error of
// registering.
type Adopted struct {
	Info         QPInfo
	Registration *Registration
	Err          error
}

// flag returns the value of a flag, or 0.
func flag(is bool, value C.uint32_t) C.uint32_t {
	if is {
		return value
	}
	return 0
}

type regAttr = C.struct_xrc_rcv_reg_attr

// register calls a function with the parameters of a registration, and with the object that the
// registration does not outlive. Domain and channel are open meanwhile.
func register[T any](d *Domain, o RegisterOptions,
	call func(*regAttr, *object) (T, error)) (T, error) {
	attr := regAttr{cookie: C.uint64_t(o.Cookie), events: C.uint64_t(o.Events)}
	attr.comp_mask = flag(o.Events != 0, C.XRC_RCV_REG_ATTR_EVENTS)
	return use(&d.object, func() (T, error) {
		if o.Channel == nil {
			return call(&attr, d.parent)
		}
		attr.channel = o.Channel.channel
		return use(&o.Channel.object, func() (T, error) { return call(&attr, &o.Channel.object) })
	})
}

// registered is the registration that a function of C has returned. It does not outlive the object.
func (o *object) registered(name string, qp *C.struct_xrc_rcv_qp,
	err error) (*Registration, error) {
	if qp == nil {
		return nil, os.NewSyscallError(name, err)
	}
	r := &Registration{QPNum: uint32(qp.qp_num)}
	r.open(o, "xrc_rcv_unreg_qp", func() C.int { return C.xrc_rcv_unreg_qp(qp) })
	return r, nil
}

// Alloc creates a receive QP and registers with it. The attributes are those that [AttrInit] or
// [AttrRTR] names; with nil the QP stays in RESET.
func (d *Domain) Alloc(attr *QPAttr, o AllocOptions) (*Registration, error) {
	given, mask := attr.toC()
	return register(d, o.RegisterOptions, func(r *regAttr, parent *object) (*Registration, error) {
		init := C.struct_xrc_rcv_init_attr{
			// XRC_RCV_INIT_ATTR_EVENTS has the value of XRC_RCV_REG_ATTR_EVENTS.
			comp_mask: r.comp_mask | flag(o.Label != 0, C.XRC_RCV_INIT_ATTR_LABEL),
			flags:     flag(o.Lifetime == LifetimeDomain, C.XRC_RCV_ALLOC_LIFETIME_DOMAIN),
			channel:   r.channel, cookie: r.cookie, events: r.events, label: C.uint64_t(o.Label),
		}
		qp, err := C.xrc_rcv_alloc_qp(d.xrcd, &init, given, mask)
		return parent.registered("xrc_rcv_alloc_qp", qp, err)
	})
}

// Register registers with a receive QP. It fails with EINVAL if the domain, which is that of the
// channel, too, has none of this number.
func (d *Domain) Register(qpNum uint32, o RegisterOptions) (*Registration, error) {
	return register(d, o, func(attr *regAttr, parent *object) (*Registration, error) {
		qp, err := C.xrc_rcv_reg_qp_ex(d.xrcd, C.uint32_t(qpNum), attr)
		return parent.registered("xrc_rcv_reg_qp_ex", qp, err)
	})
}

// Adopt registers with all receive QPs of the domain, for the successor of a process that has
// ended.
func (d *Domain) Adopt(o RegisterOptions) ([]Adopted, error) {
	return register(d, o, func(attr *regAttr, parent *object) ([]Adopted, error) {
		var qps *C.struct_xrc_rcv_adopted_qp
		var n C.size_t
		errno := C.xrc_rcv_adopt_domain(d.xrcd, attr, &qps, C.sizeof_struct_xrc_rcv_adopted_qp, &n)
		defer C.free(unsafe.Pointer(qps))
		adopted := make([]Adopted, n)
		for i, qp := range unsafe.Slice(qps, n) {
			r, err := parent.registered("xrc_rcv_reg_qp_ex", qp.qp, syscall.Errno(qp.error))
			adopted[i] = Adopted{infoOf(&qp.info), r, err}
		}
		return adopted, result("xrc_rcv_adopt_domain", errno)
	})
}

// Modify modifies a receive QP. The caller need not be registered.
func (d *Domain) Modify(qpNum uint32, attr *QPAttr) error {
	given, mask := attr.toC()
	return d.call("xrc_rcv_modify_qp", func() C.int {
		return C.xrc_rcv_modify_qp(d.xrcd, C.uint32_t(qpNum), given, mask)
	})
}

// Query returns a receive QP of the domain. The caller need not be registered.
func (d *Domain) Query(qpNum uint32) (QPInfo, error) {
	var info C.struct_xrc_rcv_qp_info
	err := d.call("xrc_rcv_query_qp", func() C.int {
		return C.xrc_rcv_query_qp(d.xrcd, C.uint32_t(qpNum), nil, &info, infoSize)
	})
	return infoOf(&info), err
}

// Destroy destroys a receive QP of [LifetimeDomain] that no registration keeps, which otherwise is
// EBUSY; with force any.
func (d *Domain) Destroy(qpNum uint32, force bool) error {
	return d.call("xrc_rcv_destroy_qp", func() C.int {
		return C.xrc_rcv_destroy_qp(d.xrcd, C.uint32_t(qpNum), flag(force, C.XRC_RCV_DESTROY_FORCE))
	})
}

// QPs returns the receive QPs of the domain, in ascending order of their numbers.
func (d *Domain) QPs() (found []QPInfo, err error) {
	var page [256]C.struct_xrc_rcv_qp_info
	for after := C.uint32_t(0); ; {
		count := C.size_t(len(page))
		err = d.call("xrc_rcv_query_domain", func() C.int {
			return C.xrc_rcv_query_domain(d.xrcd, after, &page[0], infoSize, &count, nil)
		})
		if err != nil || count == 0 {
			return found, err
		}
		for _, info := range page[:count] {
			found, after = append(found, infoOf(&info)), info.qp_num
		}
	}
}

// A readable is an object whose descriptor is readable when there is something to take. The runtime
// polls it, so that goroutines that wait need no thread.
type readable struct {
	object
	file *os.File
	turn chan struct{} // one goroutine at a time takes, as its deadline is that of the file
}

// open makes it an object of C. The library closes its own descriptor, and the runtime another one.
func (r *readable) open(parent *object, name string, fd C.int, destroy func() C.int) error {
	dup, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		destroy()
		return os.NewSyscallError("fcntl", errno)
	}
	syscall.SetNonblock(int(dup), true)
	r.file, r.turn = os.NewFile(dup, name), make(chan struct{}, 1)
	r.object.open(parent, name, func() C.int {
		r.file.Close() // wakes the goroutines that wait, and waits for them to leave C
		return destroy()
	})
	return nil
}

// take calls function, whenever the descriptor is readable, until it does not fail with EAGAIN. A
// context that ends after that changes nothing: an event that was taken is returned.
func (r *readable) take(ctx context.Context, name string,
	function func() (C.ssize_t, error)) (int, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		r.file.SetReadDeadline(time.Unix(1, 0))
		close(expired)
	})
	conn, _ := r.file.SyscallConn() // fails without a file only
	n, errno := C.ssize_t(0), error(nil)
	err := conn.Read(func(uintptr) bool {
		n, errno = function()
		return n >= 0 || errno != syscall.EAGAIN
	})
	if !stop() {
		<-expired
		r.file.SetReadDeadline(time.Time{})
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, ctx.Err()
	}
	if err != nil { // it is closed, or cannot be polled any more, as its device was removed
		err = r.call(name, func() C.int { n, errno = function(); return 0 })
	}
	if err == nil && n < 0 {
		err = os.NewSyscallError(name, errno)
	}
	return max(int(n), 0), err
}

// An SRQ is an SRQ with memory for messages.
type SRQ struct {
	readable
	Num uint32 // senders address messages to it
	srq *C.struct_xrc_rcv_srq
}

// CreateSRQ creates an SRQ for depth messages of up to size bytes that are not yet received.
func (d *Domain) CreateSRQ(depth, size uint32) (*SRQ, error) {
	return use(&d.object, func() (*SRQ, error) {
		srq, err := C.xrc_rcv_create_srq(d.xrcd, C.uint32_t(depth), C.uint32_t(size))
		if srq == nil {
			return nil, os.NewSyscallError("xrc_rcv_create_srq", err)
		}
		s := &SRQ{srq: srq, Num: uint32(srq.srq_num)}
		return s, s.open(&d.object, "xrc_rcv_destroy_srq", srq.fd, func() C.int {
			return C.xrc_rcv_destroy_srq(srq)
		})
	})
}

// Receive waits for the next message and returns its length. It fails with EINVAL if the buffer is
// smaller than the size of the SRQ, and with EIO if the message was longer.
func (s *SRQ) Receive(ctx context.Context, message []byte) (int, error) {
	return s.take(ctx, "xrc_rcv_receive", func() (C.ssize_t, error) {
		data := unsafe.Pointer(unsafe.SliceData(message))
		n, err := C.xrc_rcv_receive(s.srq, data, C.size_t(len(message)), 0)
		return n, err
	})
}

// An EventChannel is a channel with registrations, from which their events are read.
type EventChannel struct {
	readable
	channel *C.struct_xrc_rcv_event_channel
}

// CreateEventChannel creates an event channel. It does not keep the domain open.
func (d *Domain) CreateEventChannel() (*EventChannel, error) {
	return use(&d.object, func() (*EventChannel, error) {
		channel, err := C.xrc_rcv_create_event_channel(d.xrcd)
		return d.created(channel, "xrc_rcv_create_event_channel", err)
	})
}

// CreateEventChannelOfAll creates an event channel that is registered with all receive QPs of the
// domain, those that exist and those that are created while it is open. With keep it keeps them, if
// this process owns the domain's file or may write to it, or the domain has none.
//
// The cookie of its events is the label of the QP; [EventQPAdded] is the first of a new QP, and
// [EventQPGone] the last of each. [Domain.QPs], called after this, returns those that existed. Its
// registrations end when it is closed, and Close of a [Registration] with it ends none.
func (d *Domain) CreateEventChannelOfAll(keep bool) (*EventChannel, error) {
	return use(&d.object, func() (*EventChannel, error) {
		flags := flag(!keep, C.XRC_RCV_EVENT_CHANNEL_OBSERVE)
		channel, err := C.xrc_rcv_create_event_channel_of_all(d.xrcd, flags)
		return d.created(channel, "xrc_rcv_create_event_channel_of_all", err)
	})
}

// created is the event channel that a function of C has returned.
func (d *Domain) created(channel *C.struct_xrc_rcv_event_channel, name string,
	err error) (*EventChannel, error) {
	if channel == nil {
		return nil, os.NewSyscallError(name, err)
	}
	c := &EventChannel{channel: channel}
	return c, c.open(d.parent, "xrc_rcv_destroy_event_channel", channel.fd, func() C.int {
		return C.xrc_rcv_destroy_event_channel(channel)
	})
}

// An Event is a record of an event channel (struct xrc_rcv_event).
type Event struct {
	QPNum, Count uint32 // and how many there were since the last record
	Type         EventType
	Cookie       uint64        // of the registration; of a channel of all, the QP's label
	Last         time.Duration // when the last of them occurred, by CLOCK_MONOTONIC
}

// Read waits for an event, and returns as many as there are and fit; others are read later. It
// fails with EIO when the device was removed and all events are read.
func (c *EventChannel) Read(ctx context.Context, events []Event) (int, error) {
	raw := make([]C.struct_xrc_rcv_event, len(events))
	n, err := c.take(ctx, "xrc_rcv_read_events", func() (C.ssize_t, error) {
		n, err := C.xrc_rcv_read_events(c.channel, unsafe.SliceData(raw),
			C.sizeof_struct_xrc_rcv_event, C.size_t(len(raw)))
		return n, err
	})
	for i, e := range raw[:n] {
		events[i] = Event{uint32(e.qp_num), uint32(e.count), EventType(e._type), uint64(e.cookie),
			time.Duration(e.last_ns)}
	}
	return n, err
}

// Events returns the events one by one, until the device was removed and all of them are read, or
// the channel is closed. Another error, such as that of the context, is the last one.
func (c *EventChannel) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for more := true; more; {
			var one [1]Event
			_, err := c.Read(ctx, one[:])
			ended := errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrClosed)
			more = !ended && yield(one[0], err) && err == nil
		}
	}
}
