# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""XRC receive QPs that the Linux kernel owns, by libxrc_rcv.

A Device is opened by its name, and a Domain by a file that processes share. In a domain one process
creates a receive QP, Domain.alloc(), and others register with it by its number, Domain.register().
An Srq has the messages to this process, an EventChannel the events of the QPs that it is registered
with. Calls that fail raise OSError, with the errno that libxrc_rcv gives; an object that is closed
raises ValueError.

Objects may be used by several threads, but for an Srq, and none that another thread closes. After
os.fork() parent and child share them: those that the child drops stay open, those that it closes
are closed for both."""

from ._attributes import Address, Caps, Event, PortAttr, QpAttr, QpInfo
from ._headers import Access, AttrMask, EventType, Lifetime, Mtu, QpState
from ._objects import Adopted, Device, Domain, EventChannel, Registration, Srq

__all__ = ["Access", "Address", "Adopted", "AttrMask", "Caps", "Device", "Domain", "Event", "EventChannel",
           "EventType", "Lifetime", "Mtu", "PortAttr", "QpAttr", "QpInfo", "QpState", "Registration",
           "Srq"]
