//! Circles of a directed graph: its strongly connected components of more than one node (Tarjan 1972).

use std::collections::BTreeMap;

/// The circles of the graph with these arrows. Nodes are in order within each.
pub fn circles(arrows: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let mut search = Search::default();
    for (from, to) in arrows {
        search.arrows.entry(from).or_default().push(to);
    }
    let nodes: Vec<usize> = search.arrows.keys().copied().collect();
    for node in nodes {
        if !search.seen.contains_key(&node) {
            search.visit(node);
        }
    }
    search.circles
}

#[derive(Debug, Default)]
struct Search {
    arrows: BTreeMap<usize, Vec<usize>>,
    /// When each node was seen first.
    seen: BTreeMap<usize, usize>,
    /// Nodes whose component is not complete yet.
    open: Vec<usize>,
    circles: Vec<Vec<usize>>,
}

impl Search {
    /// Visits a node and what it leads to. Returns the earliest open node in reach, as the time when it was seen.
    fn visit(&mut self, node: usize) -> usize {
        let time = self.seen.len();
        self.seen.insert(node, time);
        self.open.push(node);
        let mut earliest = time;
        for next in self.arrows.get(&node).cloned().unwrap_or_default() {
            match self.seen.get(&next) {
                None => earliest = earliest.min(self.visit(next)),
                Some(seen) if self.open.contains(&next) => earliest = earliest.min(*seen),
                Some(_) => {}
            }
        }
        if earliest == time {
            let first = self.open.iter().position(|open| *open == node);
            let mut component = self.open.split_off(first.unwrap_or(self.open.len()));
            if component.len() > 1 {
                component.sort_unstable();
                self.circles.push(component);
            }
        }
        earliest
    }
}

#[test]
fn circles_are_what_leads_back_to_itself() {
    let found = |arrows: &[(usize, usize)]| circles(arrows.iter().copied());
    assert!(found(&[(0, 1), (1, 2), (0, 2)]).is_empty());
    assert_eq!(found(&[(2, 0), (0, 1), (1, 2), (2, 3)]), [[0, 1, 2]]);
    let two = found(&[(0, 1), (1, 0), (1, 2), (2, 3), (3, 2)]);
    assert_eq!(two, [[2, 3], [0, 1]]);
    // Two ways around that share a file are one circle.
    assert_eq!(found(&[(0, 1), (1, 0), (1, 2), (2, 1)]), [[0, 1, 2]]);
}
