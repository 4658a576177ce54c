# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Devices, domains, SRQs, event channels and registrations."""

import asyncio
import ctypes
import itertools
import math
import os
import select
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from errno import EIO, ENODEV, ENOSYS
from ipaddress import IPv6Address
from typing import Any, Self, TypeVar

from . import _headers as c
from ._attributes import Caps, Event, PortAttr, QpAttr, QpInfo, from_qp_attr, to_qp_attr
from ._headers import EventType, Lifetime
from ._library import error, fill, free, number, verbs, xrc_rcv

T = TypeVar("T")
_keys = itertools.count()
_Children = dict[int, Any]    # of weakref.finalize


def _destroy(function: Callable[[Any], None], pointer: Any, children: _Children, siblings: _Children, key: int) -> None:
    """Gives an object of C back, after those that may not outlive it."""
    siblings.pop(key, None)
    for child in reversed(list(children.values())):
        child()
    try:
        function(pointer)
    except OSError as failure:
        if failure.errno != EIO:    # no object is left of a device that was removed
            raise


def _collect(pid: int, *arguments: Any) -> None:
    """The same, but for a forked child: the objects are its parent's."""
    if os.getpid() == pid:
        _destroy(*arguments)


class _Object:
    """An object of C, which is given back once: by close(), at the end of a `with` block, or when
    nothing refers to it. The order is right in any case, also where the garbage collector finds
    several at once: the objects that may not outlive this one are closed before it."""

    def __init__(self, pointer: Any, function: Callable[[Any], None], outlived_by: "_Object | None" = None) -> None:
        self._pointer, key = pointer, next(_keys)
        self._children: _Children = {}
        siblings: _Children = outlived_by._children if outlived_by else {}
        self._finalizer = weakref.finalize(self, _collect, os.getpid(), function, pointer, self._children, siblings, key)
        self._finalizer.atexit = False    # the kernel closes what a process leaves
        siblings[key] = self._finalizer

    @property
    def _open(self) -> Any:
        if not self._finalizer.alive:
            raise ValueError(f"the {type(self).__name__} is closed")
        return self._pointer

    def close(self) -> None:
        """Closes it, and the objects that may not outlive it. Another call does nothing."""
        for child in reversed(list(self._children.values())):
            if alive := child.peek():
                alive[0].close()
        if alive := self._finalizer.detach():
            _destroy(*alive[2][1:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Readable(_Object):
    """An object with a descriptor that is readable when there is something to take."""

    _fd: int
    _reader: asyncio.AbstractEventLoop | None = None

    def fileno(self) -> int:
        """The descriptor, for an event loop."""
        self._open
        return self._fd

    def close(self) -> None:
        self._wake()    # tasks that wait
        super().close()

    def _wait(self, take: Callable[[], T], timeout: float | None) -> T:
        """What `take` returns, as soon as it does not raise BlockingIOError."""
        end = None if timeout is None else time.monotonic() + timeout
        poll = None
        while True:
            try:
                return take()
            except BlockingIOError:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise
                if not poll:
                    poll = select.poll()
                    poll.register(self._fd, select.POLLIN)
                poll.poll(None if left is None else min(math.ceil(1000 * left), 1 << 30))

    async def _take(self, take: Callable[[], T]) -> T:
        await asyncio.sleep(0)    # others run, however much there is to take
        while True:
            try:
                return take()
            except BlockingIOError:
                await self._readable()

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._reader:
            self._waiters: set[asyncio.Future[None]] = set()
            loop.add_reader(self._fd, self._wake)
            self._reader = loop
        waiter = loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if not self._waiters:
                self._wake()

    def _wake(self) -> None:
        """Ends the waiting of all tasks, of which those that find nothing begin anew."""
        if reader := self._reader:
            self._reader = None
            reader.remove_reader(self._fd)
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)


class Device(_Object):
    """An open RDMA device."""

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            super().__init__(_with_devices(lambda devices: self._open_in(devices)), verbs.ibv_close_device)
        except OSError as failure:
            failure.filename = name
            raise

    @staticmethod
    def names() -> list[str]:
        """The names of the devices."""
        return _with_devices(lambda devices: [*devices])

    def _open_in(self, devices: dict[str, int]) -> int:
        if self.name not in devices:
            raise OSError(ENODEV, "no such RDMA device")
        context: int = verbs.ibv_open_device(devices[self.name])
        return context

    def query_caps(self) -> Caps:
        caps = c.xrc_rcv_caps()
        xrc_rcv.xrc_rcv_query_caps(self._open, caps, ctypes.sizeof(caps))
        return Caps._of(caps)

    def query_port(self, port_num: int = 1) -> PortAttr:
        attr = c.ibv_port_attr()
        verbs.ibv_query_port(self._open, number("port_num", port_num, 8), attr)
        return PortAttr._of(attr)

    def query_gid(self, port_num: int = 1, index: int = 0) -> IPv6Address:
        gid = ctypes.create_string_buffer(16)
        verbs.ibv_query_gid(self._open, number("port_num", port_num, 8), number("index", index, 31), gid)
        return IPv6Address(gid.raw)

    def open_domain(self, file: int | str | os.PathLike[str] | None = None, *, create: bool = True,
                    exclusive: bool = False) -> "Domain":
        """Opens the XRC domain of a file, a descriptor or an existing path, which processes share;
        None is for a domain of this process alone. Without `create` there has to be a domain, with
        `exclusive` there may be none."""
        flags = os.O_CREAT * create | os.O_EXCL * exclusive
        if file is None or isinstance(file, int):
            return Domain(self, -1 if file is None else file, flags)
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return Domain(self, fd, flags)
        finally:
            os.close(fd)


def _with_devices(use: Callable[[dict[str, int]], T]) -> T:
    count = ctypes.c_int()
    try:
        devices = verbs.ibv_get_device_list(count)
    except OSError as failure:
        if failure.errno != ENOSYS:
            raise
        raise OSError(ENODEV, "no RDMA devices: ib_uverbs is not loaded") from None
    try:
        return use({verbs.ibv_get_device_name(device).decode(): device for device in devices[:count.value]})
    finally:
        verbs.ibv_free_device_list(devices)


class Domain(_Object):
    """An XRC domain that this process has open. Registrations and event channels may outlive it,
    SRQs may not."""

    def __init__(self, device: Device, fd: int, flags: int) -> None:
        self.device = device
        super().__init__(xrc_rcv.xrc_rcv_open_domain(device._open, fd, flags), xrc_rcv.xrc_rcv_close_domain, device)

    def create_srq(self, depth: int, size: int) -> "Srq":
        """An SRQ for `depth` messages of up to `size` bytes that are not yet received."""
        return Srq(self, depth, size)

    def create_event_channel(self) -> "EventChannel":
        return EventChannel(self, xrc_rcv.xrc_rcv_create_event_channel(self._open))

    def create_event_channel_of_all(self, *, observe: bool = False) -> "EventChannel":
        """A channel that is registered with all receive QPs of the domain: those that exist, and
        those that are created while it is open. It keeps them, if the caller may write to the
        domain's file; with `observe` it keeps none.

        The first event of a new QP is QP_ADDED, the last of each is QP_GONE; qps(), called after
        this, lists those that existed before. The cookie of an event is the label of its QP.
        alloc() takes the channel, unless it observes and the QP lives by its registrations; a
        registration with it ends with the channel alone."""
        flags = c.EventChannelFlags.OBSERVE if observe else 0
        return EventChannel(self, xrc_rcv.xrc_rcv_create_event_channel_of_all(self._open, flags))

    def alloc(self, attr: Any = None, mask: int | None = None, *, lifetime: Lifetime = Lifetime.REGISTRATIONS,
              channel: "EventChannel | None" = None, cookie: int = 0, events: Iterable[int] | None = None,
              label: int | None = None) -> "Registration":
        """Creates a receive QP and registers with it.

        `attr` is a QpAttr, with what INIT requires, or INIT and RTR; without it the QP stays in
        RESET. An object with the same properties, as a QPAttr of pyverbs, needs a `mask`. Without
        `events` all are delivered to the channel; without a channel none are."""
        init = c.xrc_rcv_init_attr(flags=c.AllocFlags.LIFETIME_DOMAIN if lifetime == Lifetime.DOMAIN else 0)
        _choose(init, channel, cookie, events)
        if label is not None:
            init.comp_mask |= c.InitAttrMask.LABEL
            fill(init, label=label)
        given = (None, 0) if attr is None else from_qp_attr(attr, mask)
        return Registration(self, channel, xrc_rcv.xrc_rcv_alloc_qp(self._open, init, *given))

    def register(self, qp_num: int, *, channel: "EventChannel | None" = None, cookie: int = 0,
                 events: Iterable[int] | None = None) -> "Registration":
        """Registers with a receive QP."""
        attr = _choose(c.xrc_rcv_reg_attr(), channel, cookie, events)
        return Registration(self, channel, xrc_rcv.xrc_rcv_reg_qp_ex(self._open, _qp_num(qp_num), attr))

    def adopt(self, *, channel: "EventChannel | None" = None, cookie: int = 0,
              events: Iterable[int] | None = None) -> "list[Adopted]":
        """Registers with all receive QPs of the domain, for the successor of a process that has
        ended."""
        found, count = ctypes.POINTER(c.xrc_rcv_adopted_qp)(), ctypes.c_size_t()
        attr = _choose(c.xrc_rcv_reg_attr(), channel, cookie, events)
        xrc_rcv.xrc_rcv_adopt_domain(self._open, attr, found, ctypes.sizeof(c.xrc_rcv_adopted_qp), count)
        # References, which point into the array.
        copies = [c.xrc_rcv_adopted_qp.from_buffer_copy(found[index]) for index in range(count.value)]
        free(found)
        return [Adopted(QpInfo._of(qp.info), Registration(self, channel, qp.qp) if qp.qp else None,
                        error("xrc_rcv_reg_qp_ex", qp.error) if qp.error else None) for qp in copies]

    def modify(self, qp_num: int, attr: Any, mask: int | None = None) -> None:
        """Modifies a receive QP; `attr` and `mask` are as for alloc(). The caller need not be
        registered."""
        xrc_rcv.xrc_rcv_modify_qp(self._open, _qp_num(qp_num), *from_qp_attr(attr, mask))

    def query(self, qp_num: int) -> tuple[QpAttr, QpInfo]:
        attr, info = c.ibv_qp_attr(), c.xrc_rcv_qp_info()
        xrc_rcv.xrc_rcv_query_qp(self._open, _qp_num(qp_num), attr, info, ctypes.sizeof(info))
        return to_qp_attr(attr), QpInfo._of(info)

    def destroy(self, qp_num: int, *, force: bool = False) -> None:
        """Destroys a receive QP of Lifetime.DOMAIN that no registration keeps; with `force` any."""
        xrc_rcv.xrc_rcv_destroy_qp(self._open, _qp_num(qp_num), c.DestroyFlags.FORCE if force else 0)

    def qps(self) -> list[QpInfo]:
        """The receive QPs of the domain, in ascending order of their numbers."""
        found: list[QpInfo] = []
        page = (c.xrc_rcv_qp_info * 256)()
        while True:
            count = ctypes.c_size_t(len(page))
            xrc_rcv.xrc_rcv_query_domain(self._open, found[-1].qp_num if found else 0, page,
                                         ctypes.sizeof(c.xrc_rcv_qp_info), count, None)
            if not count.value:
                return found
            found += map(QpInfo._of, page[:count.value])


def _qp_num(qp_num: int) -> int:
    return number("qp_num", qp_num, 32)


def _choose(attr: Any, channel: "EventChannel | None", cookie: int, events: Iterable[int] | None) -> Any:
    """The parameters of a registration."""
    if channel:
        attr.channel = channel._open
    fill(attr, cookie=cookie)
    if events is not None:
        attr.comp_mask |= c.InitAttrMask.EVENTS    # that of struct xrc_rcv_reg_attr is the same
        fill(attr, events=sum(1 << event for event in set(events)))
    return attr


class Srq(_Readable):
    """An SRQ with memory for messages. It is for one thread at a time.

    `async for message in srq` and `await anext(srq)` receive in a task."""

    def __init__(self, domain: Domain, depth: int, size: int) -> None:
        self.domain = domain
        srq = xrc_rcv.xrc_rcv_create_srq(domain._open, number("depth", depth, 32), number("size", size, 32))
        super().__init__(srq, xrc_rcv.xrc_rcv_destroy_srq, domain)
        self._fd, self.srq_num = int(srq.contents.fd), int(srq.contents.srq_num)
        self._message = ctypes.create_string_buffer(size)

    def receive(self, timeout: float | None = None) -> bytes:
        """The next message; BlockingIOError (EAGAIN) if there is none for `timeout` seconds, of
        which None is without an end. The descriptor is readable by the next message after that."""
        return self._wait(self._receive, timeout)

    def _receive(self) -> bytes:
        length = xrc_rcv.xrc_rcv_receive(self._open, self._message, len(self._message), 0)
        return ctypes.string_at(self._message, length)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await self._take(self._receive)


class EventChannel(_Readable):
    """A channel with registrations, from which their events are read. Any number of tasks may read
    from it.

    `async for event in channel` ends when the device was removed and all events are read, or the
    channel is closed."""

    def __init__(self, domain: Domain, channel: Any) -> None:
        self.domain = domain
        super().__init__(channel, xrc_rcv.xrc_rcv_destroy_event_channel, domain.device)
        self._fd = int(channel.contents.fd)
        os.set_blocking(self._fd, False)

    def read(self, timeout: float | None = None) -> list[Event]:
        """The unread events; none if there is no event for `timeout` seconds, of which None is
        without an end."""
        try:
            return self._wait(lambda: self._read(64), timeout)
        except BlockingIOError:
            return []

    def _read(self, most: int) -> list[Event]:
        events = (c.xrc_rcv_event * most)()
        count = xrc_rcv.xrc_rcv_read_events(self._open, events, ctypes.sizeof(c.xrc_rcv_event), most)
        return [*map(Event._of, events[:count])]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        try:
            return (await self._take(lambda: self._read(1)))[0]
        except OSError as failure:
            if failure.errno != EIO:
                raise
        except ValueError:
            if self._finalizer.alive:
                raise
        raise StopAsyncIteration


class Registration(_Object):
    """A registration with the receive QP `qp_num`. It ends with its channel, and when nothing
    refers to it."""

    def __init__(self, domain: Domain, channel: EventChannel | None, qp: Any) -> None:
        self.domain, self.channel, self.qp_num = domain, channel, int(qp.contents.qp_num)
        super().__init__(qp, xrc_rcv.xrc_rcv_unreg_qp, channel or domain.device)

    def unregister(self) -> None:
        """Ends it, and discards its unread events: close()."""
        self.close()


@dataclass(frozen=True)
class Adopted:
    """A receive QP that Domain.adopt() has found: with a registration, or the error of
    registering."""

    info: QpInfo
    registration: Registration | None
    error: OSError | None
