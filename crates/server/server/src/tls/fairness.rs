//! Lines of newcomers by the address that they come from, so that an address that floods takes the room of its own only.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// Newcomers by address. Each address has its turn, and the longest line makes room.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// None of them is empty. Numbers of newcomers rise.
    lines: HashMap<IpAddr, VecDeque<u64>>,
    /// Addresses that have a line, in the order of their turns.
    turns: VecDeque<IpAddr>,
}

impl Lines {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn enter(&mut self, from: IpAddr, id: u64) {
        let line = self.lines.entry(from).or_default();
        if line.is_empty() {
            self.turns.push_back(from);
        }
        line.push_back(id);
    }

    /// Whose turn it is: the first in line of an address, which then waits for the others.
    pub(super) fn next(&mut self) -> Option<u64> {
        let from = self.turns.pop_front()?;
        let line = self.lines.get_mut(&from)?;
        let id = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&from);
        } else {
            self.turns.push_back(from);
        }
        id
    }

    /// Who has waited longest in the longest line.
    pub(super) fn crowding(&self) -> Option<u64> {
        let longest = self.lines.values().max_by_key(|line| line.len())?;
        longest.front().copied()
    }

    pub(super) fn leave(&mut self, from: IpAddr, id: u64) {
        let Some(line) = self.lines.get_mut(&from) else {
            return;
        };
        if let Ok(at) = line.binary_search(&id) {
            line.remove(at);
        }
        if line.is_empty() {
            self.lines.remove(&from);
            self.turns.retain(|turn| *turn != from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn addresses_take_turns() {
        let mut lines = Lines::default();
        for id in 0..100 {
            lines.enter(address(1), id);
        }
        lines.enter(address(2), 100);
        lines.enter(address(3), 101);
        lines.enter(address(3), 102);
        let order: Vec<u64> = (0..6).filter_map(|_| lines.next()).collect();
        assert_eq!(order, [0, 100, 101, 1, 102, 2]);
        lines.enter(address(2), 103);
        assert_eq!((lines.next(), lines.next()), (Some(3), Some(103)));
    }

    #[test]
    fn the_longest_line_makes_room() {
        let mut lines = Lines::default();
        lines.enter(address(2), 0);
        for id in 1..1000 {
            lines.enter(address(1), id);
            if id >= 4 {
                let crowding = lines.crowding().unwrap();
                assert_eq!(crowding, id - 3);
                lines.leave(address(1), crowding);
            }
        }
        assert_eq!(lines.lines[&address(2)], [0]);
    }

    #[test]
    fn who_leaves_has_no_turn() {
        let mut lines = Lines::default();
        lines.enter(address(1), 1);
        lines.enter(address(2), 2);
        lines.enter(address(2), 3);
        lines.leave(address(1), 1);
        lines.leave(address(2), 2);
        lines.leave(address(2), 2);
        assert_eq!((lines.next(), lines.next()), (Some(3), None));
        assert!(lines.is_empty() && lines.turns.is_empty());
        assert_eq!(lines.crowding(), None);
    }
}
