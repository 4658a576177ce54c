// SPDX-License-Identifier: GPL-2.0

// Tests on a device, which qemu/tests/user/go runs in a guest, each in a process of its own:
// DEVICE is DEVICE/PORT/GID_INDEX, SENDER the tutorial's sender to port 7471 of this node, REMOVE a
// command that removes the device.
package xrcrcv_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xrc-rcv.example/xrcrcv"
)

const label = 0x123456789abcdef0

var background = context.Background()

// A node has the objects of a test, and ends the process if the test takes too long.
type node struct {
	*testing.T
	path, name string
	port       uint8
	gidIndex   int
	device     *xrcrcv.Device
	domain     *xrcrcv.Domain
	channel    *xrcrcv.EventChannel
}

func start(t *testing.T) *node {
	n := &node{T: t, path: filepath.Join(t.TempDir(), "domain"), port: 1}
	patience, err := strconv.Atoi(os.Getenv("patience"))
	if err != nil {
		patience = 240
	}
	timer := time.AfterFunc(time.Duration(patience)*time.Second, func() { panic("too long") })
	t.Cleanup(func() { timer.Stop() })
	name, place, _ := strings.Cut(os.Getenv("DEVICE"), "/")
	fmt.Sscanf(place, "%d/%d", &n.port, &n.gidIndex)
	if err := os.WriteFile(n.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.name, n.device = name, must(xrcrcv.OpenDevice(name))
	n.domain = n.open(n.device, os.O_CREATE)
	n.channel = must(n.domain.CreateEventChannel())
	return n
}

func (n *node) open(device *xrcrcv.Device, flags int) *xrcrcv.Domain {
	file := must(os.Open(n.path))
	defer file.Close()
	return must(device.OpenDomain(file, flags))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// fails checks that an error is the expected one, which may be nil.
func (n *node) fails(expected, err error) {
	n.Helper()
	if !errors.Is(err, expected) {
		n.Errorf("%v, not %v", err, expected)
	}
}

// connectedTo are the attributes of a receive QP, ready to receive from a QP of this node.
func (n *node) connectedTo(peer uint32) *xrcrcv.QPAttr {
	port := must(n.device.Port(n.port, n.gidIndex))
	address := xrcrcv.Address{Port: n.port, DLID: port.LID, SGIDIndex: uint8(n.gidIndex), HopLimit: 64}
	if port.LID == 0 {
		address.DGID = port.GID
	}
	return &xrcrcv.QPAttr{Mask: xrcrcv.AttrRTR, Port: n.port, Address: address, PathMTU: xrcrcv.MTU1024, DestQPNum: peer}
}

// broken creates a receive QP that has an unread event.
func (n *node) broken(cookie uint64) *xrcrcv.Registration {
	options := xrcrcv.RegisterOptions{Channel: n.channel, Cookie: cookie}
	qp := must(n.domain.Alloc(n.connectedTo(0x102), xrcrcv.AllocOptions{RegisterOptions: options}))
	n.breakIt(qp)
	return qp
}

func (n *node) breakIt(qp *xrcrcv.Registration) {
	err := n.domain.Modify(qp.QPNum, &xrcrcv.QPAttr{Mask: xrcrcv.AttrState, State: xrcrcv.QPErr})
	if err != nil {
		n.Fatal(err)
	}
}

func (n *node) registrations(domain *xrcrcv.Domain) (sum uint32) {
	for _, qp := range must(domain.QPs()) {
		sum += qp.Registrations
	}
	return sum
}

func TestQuery(t *testing.T) {
	n := start(t)
	caps := must(n.device.Caps())
	if caps.Version != 2 || caps.EventTypes>>xrcrcv.EventQPGone&1 != 1 || caps.MaxQPsPerDomain != 16384 ||
		caps.MaxQPsPerUser != 8192 || caps.MaxRegistrationsPerQP != 4096 {
		t.Error(caps)
	}
	port := must(n.device.Port(n.port, n.gidIndex))
	gid := must(os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/gids/%d", n.name, n.port, n.gidIndex)))
	if strings.TrimSpace(string(gid)) != port.GID.StringExpanded() && !port.GID.Is4In6() || port.ActiveMTU < xrcrcv.MTU1024 {
		t.Error(port, string(gid))
	}
	created := xrcrcv.AllocOptions{Lifetime: xrcrcv.LifetimeDomain, Label: label}
	qp := must(n.domain.Alloc(n.connectedTo(0x102), created))
	info := xrcrcv.QPInfo{QPNum: qp.QPNum, DestQPNum: 0x102, Registrations: 1, State: xrcrcv.QPRTR,
		Lifetime: xrcrcv.LifetimeDomain, Label: label}
	if got := must(n.domain.Query(qp.QPNum)); got != info {
		t.Error(got)
	}
	var expected []uint32
	for range 300 { // more than a page
		expected = append(expected, must(n.domain.Alloc(nil, xrcrcv.AllocOptions{})).QPNum)
	}
	if got := must(n.domain.QPs()); len(got) != 301 || got[0] != info || got[300].QPNum != expected[299] {
		t.Error(got)
	}
}

func TestErrors(t *testing.T) {
	n := start(t)
	_, err := xrcrcv.OpenDevice("nodevice")
	n.fails(syscall.ENODEV, err)
	file, own := must(os.Open(n.path)), must(n.device.OpenDomain(nil, os.O_CREATE))
	_, err = n.device.OpenDomain(file, os.O_CREATE|os.O_EXCL)
	n.fails(syscall.EINVAL, err)
	_, err = n.device.OpenDomain(must(os.Create(n.path+"2")), 0)
	n.fails(syscall.EAGAIN, err)
	file.Close()
	_, err = n.device.OpenDomain(file, os.O_CREATE)
	n.fails(os.ErrClosed, err)
	_, err = n.domain.CreateSRQ(0, 64)
	n.fails(syscall.EINVAL, err)
	_, err = n.domain.Alloc(&xrcrcv.QPAttr{Mask: xrcrcv.AttrDestQPNum, DestQPNum: 1}, xrcrcv.AllocOptions{})
	n.fails(syscall.EINVAL, err)
	_, err = own.Alloc(nil, xrcrcv.AllocOptions{RegisterOptions: xrcrcv.RegisterOptions{Channel: n.channel}})
	n.fails(syscall.EINVAL, err)
	_, err = n.domain.Register(0xffffff, xrcrcv.RegisterOptions{Channel: n.channel})
	n.fails(syscall.EINVAL, err)
	_, err = n.domain.Query(0xffffff)
	n.fails(syscall.EINVAL, err)
	_, err = n.device.Port(0xff, 0)
	n.fails(syscall.EINVAL, err)
	_, err = n.channel.Read(background, nil)
	n.fails(syscall.EINVAL, err)
	_, err = must(n.domain.CreateSRQ(1, 64)).Receive(background, make([]byte, 63))
	n.fails(syscall.EINVAL, err)
	qp := must(n.domain.Alloc(nil, xrcrcv.AllocOptions{Lifetime: xrcrcv.LifetimeDomain}))
	err = n.domain.Destroy(qp.QPNum, false)
	n.fails(syscall.EBUSY, err)
	var call *os.SyscallError
	if !errors.As(err, &call) || call.Syscall != "xrc_rcv_destroy_qp" {
		t.Error(err)
	}
	n.fails(nil, n.domain.Destroy(qp.QPNum, true))
	n.fails(syscall.EINVAL, n.domain.Destroy(qp.QPNum, true))
}

func TestEvents(t *testing.T) {
	n := start(t)
	for cookie := range uint64(5) {
		n.broken(cookie + 1)
	}
	// None is lost that did not fit.
	var read []xrcrcv.Event
	for size := 1; len(read) < 5; size++ {
		events := make([]xrcrcv.Event, size)
		count := must(n.channel.Read(background, events))
		if count < 1 || count > size {
			t.Fatalf("%d of %d", count, size)
		}
		read = append(read, events[:count]...)
	}
	// QPs report in any order.
	cookies := map[uint64]bool{}
	for _, event := range read {
		cookies[event.Cookie] = true
		if event.Type != xrcrcv.EventLastWQEReached || event.Count != 1 || event.Last <= 0 {
			t.Error(event)
		}
	}
	// The stream has those that a loop has left.
	n.broken(6)
	n.broken(7)
	for range 2 {
		for event, err := range n.channel.Events(background) {
			n.fails(nil, err)
			cookies[event.Cookie] = true
			break
		}
	}
	if len(read) != 5 || len(cookies) != 7 || read[0].Type.String() != "last WQE reached" {
		t.Error(read, cookies)
	}
	options := xrcrcv.RegisterOptions{Channel: n.channel, Events: 1 << xrcrcv.EventQPGone}
	qp := must(n.domain.Alloc(n.connectedTo(0x102), xrcrcv.AllocOptions{RegisterOptions: options}))
	n.breakIt(qp)
	n.fails(nil, n.domain.Destroy(qp.QPNum, true))
	for event, err := range n.channel.Events(background) {
		if err != nil || event.Type != xrcrcv.EventQPGone {
			t.Error(event, err)
		}
		break
	}
}

// next checks the next event of a channel of all: it is of a QP with a label.
func (n *node) next(channel *xrcrcv.EventChannel, kind xrcrcv.EventType, qpNum uint32) {
	n.Helper()
	var events [1]xrcrcv.Event
	must(channel.Read(background, events[:]))
	last := events[0].Last
	expected := xrcrcv.Event{QPNum: qpNum, Count: 1, Type: kind, Cookie: label, Last: last}
	if events[0] != expected || last <= 0 {
		n.Errorf("%+v, not %+v", events[0], expected)
	}
}

// A channel of all gets the events of each QP with its label, and keeps the QP or not.
func TestOfAll(t *testing.T) {
	n := start(t)
	labelled := xrcrcv.AllocOptions{Label: label}
	old := must(n.domain.Alloc(nil, labelled))
	observer := must(n.domain.CreateEventChannelOfAll(false))
	qp := must(n.domain.Alloc(nil, labelled))
	n.next(observer, xrcrcv.EventQPAdded, qp.QPNum)
	n.fails(nil, qp.Close())
	n.next(observer, xrcrcv.EventQPGone, qp.QPNum)
	// The channel got no QP_ADDED of a QP that existed.
	n.fails(nil, old.Close())
	n.next(observer, xrcrcv.EventQPGone, old.QPNum)

	// A keeper keeps a QP after its last registration, also if that was with the keeper.
	keeper := must(n.domain.CreateEventChannelOfAll(true))
	with := labelled
	for _, channel := range []*xrcrcv.EventChannel{nil, keeper} {
		with.Channel = channel
		qp = must(n.domain.Alloc(nil, with))
		n.next(keeper, xrcrcv.EventQPAdded, qp.QPNum)
		n.next(observer, xrcrcv.EventQPAdded, qp.QPNum)
		n.fails(nil, qp.Close())
		if got := must(n.domain.Query(qp.QPNum)); got.Registrations != 2 || got.Label != label {
			t.Error(got)
		}
	}
	with.Channel = observer
	_, err := n.domain.Alloc(nil, with)
	n.fails(syscall.EINVAL, err)

	// The QPs that only the keeper keeps end with it.
	n.fails(nil, keeper.Close())
	if got := must(n.domain.QPs()); len(got) != 0 {
		t.Error(got)
	}
	n.fails(nil, observer.Close())
}

func TestContext(t *testing.T) {
	n := start(t)
	events := make([]xrcrcv.Event, 8)
	srq := must(n.domain.CreateSRQ(1, 64))
	takes := map[string]func(context.Context) (int, error){
		"event":   func(ctx context.Context) (int, error) { return n.channel.Read(ctx, events) },
		"message": func(ctx context.Context) (int, error) { return srq.Receive(ctx, make([]byte, 64)) },
	}
	for name, take := range takes {
		t.Log(name)
		soon, cancel := context.WithTimeout(background, 20*time.Millisecond)
		defer cancel()
		_, err := take(soon)
		n.fails(context.DeadlineExceeded, err)
		_, err = take(soon)
		n.fails(context.DeadlineExceeded, err)
		// Two wait, of which the second has no turn; each ends with its own context.
		first, endFirst := context.WithCancel(background)
		second, endSecond := context.WithCancel(background)
		ended := make(chan error, 2)
		for _, ctx := range []context.Context{first, second} {
			go func() {
				_, err := take(ctx)
				ended <- err
			}()
			time.Sleep(10 * time.Millisecond)
		}
		endSecond()
		n.fails(context.Canceled, <-ended)
		if len(ended) != 0 {
			t.Error("both have ended")
		}
		endFirst()
		n.fails(context.Canceled, <-ended)
	}
}

// A context that has ended leaves neither a deadline for others, nor takes an event.
func TestContextEnded(t *testing.T) {
	n := start(t)
	events := make([]xrcrcv.Event, 8)
	ended, cancel := context.WithCancel(background)
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err := n.channel.Read(ended, events)
	n.fails(context.Canceled, err)
	got := make(chan int)
	go func() { got <- must(n.channel.Read(background, events)) }()
	time.Sleep(10 * time.Millisecond)
	n.broken(1)
	if count := <-got; count != 1 || events[0].Cookie != 1 {
		t.Error(count, events[0])
	}
	n.broken(2)
	_, err = n.channel.Read(ended, events)
	n.fails(context.Canceled, err)
	if must(n.channel.Read(background, events)) != 1 || events[0].Cookie != 2 {
		t.Error(events[0])
	}
}

func descriptors() int { return len(must(os.ReadDir("/proc/self/fd"))) }

func TestClose(t *testing.T) {
	n := start(t)
	other := n.open(must(xrcrcv.OpenDevice(n.name)), 0)
	created := xrcrcv.AllocOptions{RegisterOptions: xrcrcv.RegisterOptions{Channel: n.channel}, Lifetime: xrcrcv.LifetimeDomain}
	qp := must(n.domain.Alloc(nil, created))
	must(n.domain.Register(qp.QPNum, xrcrcv.RegisterOptions{}))
	before := descriptors()
	for range 3 {
		channel := must(n.domain.CreateEventChannel())
		registration := must(n.domain.Register(qp.QPNum, xrcrcv.RegisterOptions{Channel: channel}))
		if n.registrations(other) != 3 {
			t.Error("not registered")
		}
		n.fails(nil, channel.Close())
		if n.registrations(other) != 2 {
			t.Error("not unregistered")
		}
		// A descriptor that is closed twice is this one.
		read, write, err := os.Pipe()
		n.fails(nil, err)
		n.fails(os.ErrClosed, channel.Close())
		n.fails(os.ErrClosed, registration.Close())
		must(write.Write([]byte{7}))
		must(read.Read([]byte{0}))
		read.Close()
		write.Close()
	}
	if after := descriptors(); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// Close wakes those that wait, and calls with a closed object fail.
func TestClosed(t *testing.T) {
	n := start(t)
	other := n.open(must(xrcrcv.OpenDevice(n.name)), 0)
	options := xrcrcv.RegisterOptions{Channel: n.channel}
	qp := must(n.domain.Alloc(nil, xrcrcv.AllocOptions{RegisterOptions: options, Lifetime: xrcrcv.LifetimeDomain}))
	srq, ended := must(n.domain.CreateSRQ(1, 64)), make(chan error)
	read := func() (int, error) { return n.channel.Read(background, make([]xrcrcv.Event, 1)) }
	receive := func() (int, error) { return srq.Receive(background, make([]byte, 64)) }
	for _, take := range []func() (int, error){read, read, receive} {
		go func() {
			_, err := take()
			ended <- err
		}()
	}
	time.Sleep(10 * time.Millisecond)
	n.fails(nil, n.device.Close())
	for range 3 {
		n.fails(os.ErrClosed, <-ended)
	}
	if n.registrations(other) != 0 {
		t.Error("not unregistered")
	}
	closed := map[string]error{"device": n.device.Close(), "domain": n.domain.Close(), "channel": n.channel.Close(),
		"SRQ": srq.Close(), "registration": qp.Close(), "modify": n.domain.Modify(qp.QPNum, &xrcrcv.QPAttr{}),
		"destroy": n.domain.Destroy(qp.QPNum, false)}
	_, closed["caps"] = n.device.Caps()
	_, closed["port"] = n.device.Port(1, 0)
	_, closed["open"] = n.device.OpenDomain(nil, os.O_CREATE)
	_, closed["query"] = n.domain.Query(qp.QPNum)
	_, closed["QPs"] = n.domain.QPs()
	_, closed["alloc"] = n.domain.Alloc(nil, xrcrcv.AllocOptions{})
	_, closed["register"] = n.domain.Register(qp.QPNum, xrcrcv.RegisterOptions{})
	_, closed["adopt"] = n.domain.Adopt(xrcrcv.RegisterOptions{})
	_, closed["create SRQ"] = n.domain.CreateSRQ(1, 1)
	_, closed["create channel"] = n.domain.CreateEventChannel()
	_, closed["create channel of all"] = n.domain.CreateEventChannelOfAll(true)
	_, closed["register with a closed channel"] = other.Register(qp.QPNum, options)
	_, closed["read"] = read()
	_, closed["receive"] = receive()
	for call, err := range closed {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", call, err)
		}
	}
	for event, err := range n.channel.Events(background) {
		t.Error(event, err)
	}
}

// A device is closed while goroutines use all that belongs to it, and close some of it.
func TestCloseInUse(t *testing.T) {
	n := start(t)
	kept := must(n.domain.Alloc(nil, xrcrcv.AllocOptions{Lifetime: xrcrcv.LifetimeDomain}))
	before := descriptors()
	for range 30 {
		device := must(xrcrcv.OpenDevice(n.name))
		domain := n.open(device, 0)
		var users sync.WaitGroup
		for range 4 {
			users.Add(1)
			go func() {
				defer users.Done()
				err := error(nil)
				for err == nil {
					err = useAndClose(domain, kept.QPNum)
				}
				n.fails(os.ErrClosed, err)
			}()
		}
		time.Sleep(2 * time.Millisecond)
		n.fails(nil, device.Close())
		users.Wait()
	}
	if after := descriptors(); after != before || n.registrations(n.domain) != 1 {
		t.Errorf("%d descriptors, %d before; %d registrations", after, before, n.registrations(n.domain))
	}
}

func useAndClose(domain *xrcrcv.Domain, qpNum uint32) error {
	channel, err := domain.CreateEventChannel()
	if err != nil {
		return err
	}
	if _, err = domain.Register(qpNum, xrcrcv.RegisterOptions{Channel: channel}); err != nil {
		return err
	}
	srq, err := domain.CreateSRQ(1, 1)
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(background, time.Microsecond)
	defer cancel()
	if _, err = channel.Read(soon, make([]xrcrcv.Event, 1)); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if err := channel.Close(); err != nil {
		return err
	}
	return srq.Close()
}

// join creates a receive QP for a sender of the tutorial.
func (n *node) join(sender net.Conn, srq *xrcrcv.SRQ) *xrcrcv.Registration {
	var lid uint16
	var gid string
	var peer, zero uint32
	must(fmt.Fscanln(sender, &lid, &gid, &peer, &zero))
	attr := n.connectedTo(peer)
	attr.Address.DLID = lid
	if lid == 0 {
		n.fails(nil, attr.Address.DGID.UnmarshalText([]byte(gid)))
	}
	options := xrcrcv.RegisterOptions{Channel: n.channel, Cookie: 7}
	qp := must(n.domain.Alloc(attr, xrcrcv.AllocOptions{RegisterOptions: options}))
	local := must(n.device.Port(n.port, n.gidIndex))
	fmt.Fprintf(sender, "%d %v %d %d\n", local.LID, local.GID, qp.QPNum, srq.Num)
	return qp
}

// The tutorial's sender sends to an SRQ, by a receive QP that it makes this process create.
func TestMessages(t *testing.T) {
	n := start(t)
	srq := must(n.domain.CreateSRQ(4, 64))
	listener := must(net.Listen("tcp", ":7471"))
	words := strings.Fields(os.Getenv("SENDER"))
	command := exec.Command(words[0], append(words[1:], "7471")...)
	command.Stderr = os.Stderr
	lines, said := must(command.StdinPipe()), bufio.NewReader(must(command.StdoutPipe()))
	n.fails(nil, command.Start())
	defer command.Process.Kill()
	// It connects on the first line.
	fmt.Fprintln(lines, "one")
	sender := must(listener.Accept())
	defer sender.Close()
	qp := n.join(sender, srq)
	message := make([]byte, 64)
	for _, line := range []string{"one", "two"} {
		count := must(srq.Receive(background, message))
		if got := strings.TrimRight(string(message[:count]), "\x00"); got != line {
			t.Errorf("%q", got)
		}
		if line == "one" {
			fmt.Fprintln(lines, "two")
		}
	}
	for event, err := range n.channel.Events(background) {
		if err != nil || event.Type != xrcrcv.EventCommEst || event.QPNum != qp.QPNum || event.Cookie != 7 {
			t.Error(event, err)
		}
		break
	}
	for _, line := range []string{"one", "two"} {
		for { // and lines of the connection
			if must(said.ReadString('\n')) == "7471: "+line+": success\n" {
				break
			}
		}
	}
}

// A successor adopts the receive QP of a process that was killed.
func TestAdopt(t *testing.T) {
	if path := os.Getenv("CREATE"); path != "" {
		n := start(t)
		n.path = path
		created := xrcrcv.AllocOptions{Lifetime: xrcrcv.LifetimeDomain, Label: label}
		must(n.open(n.device, 0).Alloc(n.connectedTo(0x102), created))
		fmt.Println("created")
		select {}
	}
	n := start(t)
	creator := exec.Command(os.Args[0], "-test.run=^TestAdopt$")
	creator.Env = append(os.Environ(), "CREATE="+n.path)
	said := bufio.NewReader(must(creator.StdoutPipe()))
	n.fails(nil, creator.Start())
	must(said.ReadString('\n'))
	creator.Process.Kill()
	creator.Wait()
	adopted := must(n.domain.Adopt(xrcrcv.RegisterOptions{Channel: n.channel, Cookie: 9}))
	if len(adopted) != 1 || adopted[0].Err != nil || adopted[0].Registration.QPNum != adopted[0].Info.QPNum ||
		adopted[0].Info.Label != label || adopted[0].Info.DestQPNum != 0x102 || adopted[0].Info.Registrations != 1 {
		t.Fatal(adopted)
	}
	refused := must(n.domain.Adopt(xrcrcv.RegisterOptions{Channel: n.channel, Events: 1 << 8}))
	if len(refused) != 1 || refused[0].Registration != nil || !errors.Is(refused[0].Err, syscall.EINVAL) {
		t.Error(refused)
	}
	n.breakIt(adopted[0].Registration)
	events := make([]xrcrcv.Event, 2)
	if must(n.channel.Read(background, events)) != 1 || events[0].Cookie != 9 {
		t.Error(events)
	}
}

func TestRemoved(t *testing.T) {
	n := start(t)
	srq := must(n.domain.CreateSRQ(1, 64))
	for cookie := range uint64(2) {
		options := xrcrcv.RegisterOptions{Channel: n.channel, Cookie: cookie + 1}
		must(n.domain.Alloc(nil, xrcrcv.AllocOptions{RegisterOptions: options}))
	}
	words := strings.Fields(os.Getenv("REMOVE"))
	removed := make(chan error)
	go func() { removed <- exec.Command(words[0], words[1:]...).Run() }()
	var cookies uint64
	for event, err := range n.channel.Events(background) {
		if err != nil || event.Type != xrcrcv.EventQPGone {
			t.Error(event, err)
		}
		cookies += event.Cookie
	}
	n.fails(nil, <-removed)
	if cookies != 3 {
		t.Errorf("cookies of %d", cookies)
	}
	_, err := n.channel.Read(background, make([]xrcrcv.Event, 1))
	n.fails(syscall.EIO, err)
	_, err = srq.Receive(background, make([]byte, 64))
	n.fails(syscall.EIO, err)
	_, err = n.domain.QPs()
	n.fails(syscall.EIO, err)
	n.fails(nil, n.device.Close())
}
