//! Numbers of nodes, as long as the kernel knows them.

use std::collections::HashMap;

use longshore_scst::node::{Directory, Node};

/// The number of the mount point.
pub(super) const ROOT: u64 = 1;

/// Numbers of nodes. A number is not used again.
pub(super) struct Nodes {
    by_number: HashMap<u64, Known>,
    numbers: HashMap<Node, u64>,
    next: u64,
}

struct Known {
    node: Node,
    /// How often the kernel was told of it and has not forgotten it.
    lookups: u64,
}

impl Default for Nodes {
    fn default() -> Self {
        let node = Node::Directory(Directory::Root);
        let known = Known {
            node: node.clone(),
            lookups: 1,
        };
        Self {
            by_number: HashMap::from([(ROOT, known)]),
            numbers: HashMap::from([(node, ROOT)]),
            next: ROOT + 1,
        }
    }
}

impl Nodes {
    pub(super) fn get(&self, number: u64) -> Option<&Node> {
        self.by_number.get(&number).map(|known| &known.node)
    }

    /// The number of a node that the kernel is told of.
    pub(super) fn look_up(&mut self, node: Node) -> u64 {
        if let Some(number) = self.numbers.get(&node)
            && let Some(known) = self.by_number.get_mut(number)
        {
            known.lookups += 1;
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.numbers.insert(node.clone(), number);
        self.by_number.insert(number, Known { node, lookups: 1 });
        number
    }

    pub(super) fn forget(&mut self, number: u64, lookups: u64) {
        let Some(known) = self.by_number.get_mut(&number) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0
            && number != ROOT
            && let Some(known) = self.by_number.remove(&number)
        {
            self.numbers.remove(&known.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_number_until_the_kernel_forgets_it() {
        let mut nodes = Nodes::default();
        let node = Node::Directory(Directory::Sys);
        let number = nodes.look_up(node.clone());
        assert_eq!(nodes.look_up(node.clone()), number);
        nodes.forget(number, 1);
        assert_eq!(nodes.get(number), Some(&node));
        nodes.forget(number, 1);
        assert_eq!(nodes.get(number), None);
        assert_ne!(nodes.look_up(node), number);
        nodes.forget(ROOT, 9);
        assert!(nodes.get(ROOT).is_some());
    }
}
