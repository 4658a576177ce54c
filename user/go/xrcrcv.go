// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

// Package xrcrcv has XRC receive QPs that the Linux kernel owns, by libxrc_rcv.
//
// A [Device] is opened by its name, and a [Domain] by a file that processes share. In a domain one
// process creates a receive QP, [Domain.Alloc], and others register with it by its number,
// [Domain.Register]. An [SRQ] has the messages to this process, an [EventChannel] the events of the
// QPs that it is registered with.
//
// A call of C that fails is an [os.SyscallError] with the errno, which [errors.Is] finds.
// EOPNOTSUPP means that the device has no receive QPs: ib_xrc_rcv is not loaded, was loaded after
// ib_uverbs had exposed the device, or the device has no XRC. EIO means that it was removed.
//
// Objects may be used by several goroutines, and closed while others use them: Close waits for
// calls that run, and wakes those that wait for an event or a message. It closes first the objects
// that may not outlive this one. Calls with a closed object fail with [os.ErrClosed], another Close
// as well. An object that is never closed is open until the process ends.
package xrcrcv

// #cgo pkg-config: libxrc_rcv
// #include <infiniband/xrc_rcv.h>
//
// // A macro, which cgo does not see.
// static int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr)
// {
//	return ibv_query_port(context, port_num, attr);
// }
import "C"

import (
	"net/netip"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// An object is an object of C, given back once: by the first Close.
type object struct {
	lock     sync.RWMutex // held by calls for reading, by Close for writing
	destroy  func() C.int // nil when it is closed
	name     string       // of the function
	parent   *object
	children sync.Map // the objects that may not outlive it
}

// process is the parent of devices.
var process object

// open makes it an object of C that destroy gives back, and that does not outlive its parent.
func (o *object) open(parent *object, name string, destroy func() C.int) {
	o.parent, o.name, o.destroy = parent, name, destroy
	parent.children.Store(o, nil)
}

// use calls a function while the object is open.
func use[T any](o *object, function func() (T, error)) (value T, err error) {
	o.lock.RLock()
	defer o.lock.RUnlock()
	if o.destroy == nil {
		return value, os.ErrClosed
	}
	return function()
}

// call calls a function of C that returns 0 or an errno, while the object is open.
func (o *object) call(name string, function func() C.int) error {
	_, err := use(o, func() (any, error) { return nil, result(name, function()) })
	return err
}

func result(name string, errno C.int) error {
	if errno == 0 {
		return nil
	}
	return os.NewSyscallError(name, syscall.Errno(errno))
}

// Close closes the object, and before it those that may not outlive it.
func (o *object) Close() error {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.destroy == nil {
		return os.ErrClosed
	}
	// Twice, as a domain adds objects to its device until it is closed itself.
	for range 2 {
		for child := range o.children.Range {
			child.(*object).Close()
		}
	}
	errno := o.destroy()
	o.destroy = nil
	o.parent.children.Delete(o)
	if errno == C.int(syscall.EIO) {
		return nil // no object is left of a device that was removed
	}
	return result(o.name, errno)
}

// A Device is an open RDMA device.
type Device struct {
	object
	context *C.struct_ibv_context
}

// OpenDevice opens an RDMA device by its name. It fails with ENODEV if there is none.
func OpenDevice(name string) (*Device, error) {
	var count C.int
	devices, err := C.ibv_get_device_list(&count)
	if devices == nil {
		return nil, os.NewSyscallError("ibv_get_device_list", err)
	}
	defer C.ibv_free_device_list(devices)
	for _, device := range unsafe.Slice(devices, count) {
		if C.GoString(C.ibv_get_device_name(device)) == name {
			d := &Device{}
			if d.context, err = C.ibv_open_device(device); d.context == nil {
				return nil, os.NewSyscallError("ibv_open_device", err)
			}
			d.open(&process, "ibv_close_device", func() C.int {
				return C.ibv_close_device(d.context)
			})
			return d, nil
		}
	}
	return nil, os.NewSyscallError(name, syscall.ENODEV)
}

// Caps are the capabilities of the kernel and a device (struct xrc_rcv_caps); a limit of 0 is none.
// Bit n of EventTypes is that of events of type n.
type Caps struct {
	Version                                               uint32
	EventTypes                                            uint64
	MaxQPsPerDomain, MaxQPsPerUser, MaxRegistrationsPerQP uint32
}

// Caps returns the capabilities.
func (d *Device) Caps() (Caps, error) {
	var c C.struct_xrc_rcv_caps
	err := d.call("xrc_rcv_query_caps", func() C.int {
		return C.xrc_rcv_query_caps(d.context, &c, C.sizeof_struct_xrc_rcv_caps)
	})
	return Caps{uint32(c.version), uint64(c.event_types), uint32(c.max_qps_per_domain),
		uint32(c.max_qps_per_user), uint32(c.max_registrations_per_qp)}, err
}

// A Port is a port of a device, as its peers need it. With RoCE the LID is 0.
type Port struct {
	ActiveMTU MTU
	LID       uint16
	GID       netip.Addr
}

// Port returns a port, of which the first is 1, and an entry of its GID table.
func (d *Device) Port(num uint8, gidIndex int) (Port, error) {
	var attr C.struct_ibv_port_attr
	var gid C.union_ibv_gid
	err := d.call("ibv_query_port", func() C.int {
		errno := C.query_port(d.context, C.uint8_t(num), &attr)
		if errno == 0 && C.ibv_query_gid(d.context, C.uint8_t(num), C.int(gidIndex), &gid) != 0 {
			errno = C.int(syscall.EINVAL)
		}
		return errno
	})
	return Port{MTU(attr.active_mtu), uint16(attr.lid), netip.AddrFrom16(gid)}, err
}

// OpenDomain opens the XRC domain of a file, which processes share, or with nil a domain of this
// process alone. The flags are [os.O_CREATE] to create the domain if there is none, which otherwise
// is EAGAIN, and with [os.O_EXCL] to fail with EINVAL if there is one.
func (d *Device) OpenDomain(file *os.File, flags int) (*Domain, error) {
	return use(&d.object, func() (*Domain, error) {
		domain, failed := &Domain{}, error(nil)
		open := func(fd uintptr) {
			domain.xrcd, failed = C.xrc_rcv_open_domain(d.context, C.int(fd), C.int(flags))
		}
		if file == nil {
			open(^uintptr(0))
		} else if conn, err := file.SyscallConn(); err != nil || conn.Control(open) != nil {
			return nil, os.ErrClosed
		}
		if domain.xrcd == nil {
			return nil, os.NewSyscallError("xrc_rcv_open_domain", failed)
		}
		domain.open(&d.object, "xrc_rcv_close_domain", func() C.int {
			return C.xrc_rcv_close_domain(domain.xrcd)
		})
		return domain, nil
	})
}
