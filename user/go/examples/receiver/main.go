// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause

// As receiver.c of libxrc_rcv, by the package xrcrcv: prints the messages to its SRQ, and the
// events of the receive QPs that it is registered with.
//
// usage: receiver DEVICE[/PORT[/GID_INDEX]] FILE TCP_PORT
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"

	"xrc-rcv.example/xrcrcv"
)

type receiver struct {
	device         *xrcrcv.Device
	domain         *xrcrcv.Domain
	srq            *xrcrcv.SRQ
	channel        *xrcrcv.EventChannel
	port, gidIndex uint8

	lock sync.Mutex
	qps  map[uint32]*xrcrcv.Registration
}

// join registers with the sender's receive QP, or creates one, and answers the sender.
func (r *receiver) join(sender net.Conn) error {
	var lid uint16
	var peer, qpNum uint32
	var word string
	if _, err := fmt.Fscanln(sender, &lid, &word, &peer, &qpNum); err != nil {
		return err
	}
	gid, err := netip.ParseAddr(word)
	if err != nil {
		return err
	}
	address := xrcrcv.Address{Port: r.port, DLID: lid, SGIDIndex: r.gidIndex, HopLimit: 64}
	if lid == 0 { // RoCE has no LIDs
		address.DGID = gid
	}
	bytes := gid.As16()
	label := binary.BigEndian.Uint64(bytes[8:]) // whose connection it is
	attr := xrcrcv.QPAttr{Mask: xrcrcv.AttrRTR, Port: r.port, Address: address, PathMTU: xrcrcv.MTU1024, DestQPNum: peer}
	events := xrcrcv.RegisterOptions{Channel: r.channel}
	options := xrcrcv.AllocOptions{RegisterOptions: events, Lifetime: xrcrcv.LifetimeDomain, Label: label}

	// The sample in the README.
	var qp *xrcrcv.Registration
	if qpNum != 0 {
		qp, err = r.domain.Register(qpNum, events)
	} else {
		qp, err = r.domain.Alloc(&attr, options) // ready to receive
	}
	if err != nil {
		return err
	}
	how := "joined"
	if qpNum == 0 {
		how = "created"
	}
	r.lock.Lock()
	r.qps[qp.QPNum] = qp
	r.lock.Unlock()
	fmt.Printf("QP %d: %s\n", qp.QPNum, how)
	local, err := r.device.Port(r.port, int(r.gidIndex))
	if err == nil {
		_, err = fmt.Fprintf(sender, "%d %v %d %d\n", local.LID, local.GID, qp.QPNum, r.srq.Num)
	}
	return err
}

func (r *receiver) printMessages() {
	message := make([]byte, 64)
	for {
		n, err := r.srq.Receive(context.Background(), message)
		if err != nil {
			fail(err)
		}
		fmt.Printf("%s\n", bytes.TrimRight(message[:n], "\x00"))
	}
}

// printEvents prints the events, and ends the registration with a QP whose connection is broken.
func (r *receiver) printEvents() {
	for event, err := range r.channel.Events(context.Background()) {
		if err != nil {
			fail(err)
		}
		fmt.Printf("QP %d: %v\n", event.QPNum, event.Type)
		r.lock.Lock()
		if qp := r.qps[event.QPNum]; qp != nil && event.Type != xrcrcv.EventCommEst {
			delete(r.qps, event.QPNum)
			qp.Close()
			// It fails but for the last process that has unregistered.
			r.domain.Destroy(event.QPNum, false)
		}
		r.lock.Unlock()
	}
	fail(errors.New("the device was removed"))
}

func fail(err error) {
	if errors.Is(err, syscall.ENOSYS) {
		err = errors.New("no RDMA devices: ib_uverbs is not loaded")
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func must[T any](value T, err error) T {
	if err != nil {
		fail(err)
	}
	return value
}

func main() {
	r := receiver{port: 1, qps: map[uint32]*xrcrcv.Registration{}}
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: receiver DEVICE[/PORT[/GID_INDEX]] FILE TCP_PORT")
		os.Exit(2)
	}
	name, place, _ := strings.Cut(os.Args[1], "/")
	fmt.Sscanf(place, "%d/%d", &r.port, &r.gidIndex)
	r.device = must(xrcrcv.OpenDevice(name))
	file := must(os.Open(os.Args[2]))
	r.domain = must(r.device.OpenDomain(file, os.O_CREATE)) // shared by the file
	r.srq = must(r.domain.CreateSRQ(16, 64))
	r.channel = must(r.domain.CreateEventChannel())
	listener := must(net.Listen("tcp", ":"+os.Args[3]))
	fmt.Println("ready")
	go r.printMessages()
	go r.printEvents()
	for {
		// TCP connections stay open, so that senders see the end of this process.
		sender := must(listener.Accept())
		if err := r.join(sender); err != nil {
			fmt.Fprintln(os.Stderr, "a sender:", err)
			sender.Close()
		}
	}
}
