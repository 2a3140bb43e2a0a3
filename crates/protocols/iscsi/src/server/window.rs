//! The command window: which CmdSN is next, and up to which the initiator may go (RFC 7143 §4.2.2.1).
//!
//! ```text
//!            ExpCmdSN               MaxCmdSN
//!               │◄── capacity - live ──►│
//!  received ────┴───────────────────────┴──── outside: ignored
//! ```
//!
//! Every non-immediate request takes one place from its reception to its response. MaxCmdSN moves up
//! by one for each place given back and therefore never moves down, which §4.2.2.1 forbids, and the
//! places promised never exceed those there are.

use crate::pdu::{CmdSn, CommandWindow};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Window {
    exp_cmd_sn: CmdSn,
    max_cmd_sn: CmdSn,
    capacity: u32,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is the one expected.
    Now,
    /// Requests before it are missing.
    Later,
    /// Received before, or beyond what the target takes: silently ignored.
    Never,
}

impl Window {
    /// A window of `capacity` places that starts at `first`.
    pub(super) const fn new(first: CmdSn, capacity: u32) -> Self {
        Self {
            exp_cmd_sn: first,
            max_cmd_sn: CmdSn(first.0.wrapping_add(capacity).wrapping_sub(1)),
            capacity,
        }
    }

    /// As responses announce it.
    #[inline]
    pub(super) const fn announced(&self) -> CommandWindow {
        CommandWindow {
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
        }
    }

    /// The number expected next.
    #[inline]
    pub(super) const fn exp_cmd_sn(&self) -> CmdSn {
        self.exp_cmd_sn
    }

    /// Places from the number expected to the last allowed.
    #[inline]
    const fn open(&self) -> u32 {
        self.max_cmd_sn.next().steps_since(self.exp_cmd_sn)
    }

    /// Whether no request has a turn.
    pub(super) const fn is_closed(&self) -> bool {
        self.open() == 0
    }

    /// Whether it is the turn of a request.
    #[inline]
    pub(super) const fn turn(&self, cmd_sn: CmdSn) -> Turn {
        let ahead = cmd_sn.steps_since(self.exp_cmd_sn);
        if ahead >= self.open() {
            Turn::Never
        } else if ahead == 0 {
            Turn::Now
        } else {
            Turn::Later
        }
    }

    /// The request expected has been received; it takes a place.
    #[inline]
    pub(super) const fn receive(&mut self) {
        debug_assert!(self.open() > 0, "a request is received within the window");
        self.exp_cmd_sn = self.exp_cmd_sn.next();
    }

    /// A request received has its response; its place is free.
    #[inline]
    pub(super) const fn give_back(&mut self) {
        debug_assert!(
            self.open() < self.capacity,
            "a response gives back the place of a request"
        );
        self.max_cmd_sn = self.max_cmd_sn.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_closes_when_all_places_are_taken_and_opens_with_the_first_response() {
        let mut window = Window::new(CmdSn(u32::MAX), 2);
        assert_eq!(window.announced().max_cmd_sn, CmdSn(0));
        for expected in [CmdSn(u32::MAX), CmdSn(0)] {
            assert_eq!(window.turn(expected), Turn::Now);
            window.receive();
        }
        assert_eq!(window.turn(CmdSn(1)), Turn::Never);
        let announced = window.announced();
        assert_eq!(announced.max_cmd_sn.next(), announced.exp_cmd_sn);
        window.give_back();
        assert_eq!(window.turn(CmdSn(1)), Turn::Now);
        assert_eq!(window.turn(CmdSn(2)), Turn::Never);
    }

    #[test]
    fn numbers_received_before_or_beyond_the_window_never_have_a_turn() {
        let mut window = Window::new(CmdSn(100), 8);
        window.receive();
        assert_eq!(window.turn(CmdSn(100)), Turn::Never);
        assert_eq!(window.turn(CmdSn(0x8000_0064)), Turn::Never);
        assert_eq!(window.turn(CmdSn(108)), Turn::Never);
        assert_eq!(window.turn(CmdSn(107)), Turn::Later);
        assert_eq!(window.turn(CmdSn(101)), Turn::Now);
    }
}
