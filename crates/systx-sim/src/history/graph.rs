//! A directed graph with coloured edges: components, and short cycles in them.
//!
//! Nodes below `transactions` are transactions. The others form the time line: one node a completion, each with an edge
//! to the next, so that "returned before that one began" costs one edge into the line and one out of it instead of one
//! for each pair.

use super::Value;
use std::collections::{HashMap, VecDeque};

/// Why one transaction comes before another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Edge {
    /// It appended `value`, right after which the other one appended.
    Overwrites { key: u32, before: Value, after: Value },
    /// It appended `value`, which the other one read as the last.
    ReadBy { key: u32, value: Value },
    /// It read the list before the other one appended `value`.
    MissedBy { key: u32, value: Value },
    /// Into, along or out of the time line.
    Time,
}

impl Edge {
    /// A bit for each colour.
    pub const OVERWRITES: u8 = 1;
    pub const READ_BY: u8 = 2;
    pub const MISSED_BY: u8 = 4;
    pub const TIME: u8 = 8;

    pub fn colour(self) -> u8 {
        match self {
            Edge::Overwrites { .. } => Edge::OVERWRITES,
            Edge::ReadBy { .. } => Edge::READ_BY,
            Edge::MissedBy { .. } => Edge::MISSED_BY,
            Edge::Time => Edge::TIME,
        }
    }
}

/// A node and the edge taken from it to the next one of a path or cycle.
pub(super) type Hop = (u32, Edge);

/// Edges by the node they leave.
pub(super) struct Graph {
    edges: Vec<Vec<(u32, Edge)>>,
}

impl Graph {
    pub fn new(nodes: usize) -> Self {
        Graph { edges: vec![Vec::new(); nodes] }
    }

    pub fn add_node(&mut self) -> u32 {
        self.edges.push(Vec::new());
        self.edges.len() as u32 - 1
    }

    pub fn add(&mut self, from: u32, to: u32, edge: Edge) {
        if from != to {
            self.edges[from as usize].push((to, edge));
        }
    }

    pub fn from(&self, node: u32, colours: u8) -> impl Iterator<Item = (u32, Edge)> + '_ {
        self.edges[node as usize].iter().copied().filter(move |(_, edge)| edge.colour() & colours != 0)
    }

    /// The strongly connected components of more than one node, over edges of `colours` (Tarjan, without recursion).
    pub fn components(&self, colours: u8) -> Vec<Vec<u32>> {
        const NEW: u32 = u32::MAX;
        let n = self.edges.len();
        let (mut index, mut low, mut on_stack) = (vec![NEW; n], vec![0u32; n], vec![false; n]);
        let (mut stack, mut calls, mut found) = (Vec::new(), Vec::<(u32, usize)>::new(), Vec::new());
        let mut entered = 0;
        for root in 0..n as u32 {
            let mut enter = (index[root as usize] == NEW).then_some(root);
            loop {
                if let Some(node) = enter.take() {
                    (index[node as usize], low[node as usize], on_stack[node as usize]) =
                        (entered, entered, true);
                    entered += 1;
                    stack.push(node);
                    calls.push((node, 0));
                }
                let Some((node, at)) = calls.last_mut() else { break };
                let v = *node as usize;
                if let Some(&(to, edge)) = self.edges[v].get(*at) {
                    *at += 1;
                    if edge.colour() & colours == 0 {
                        continue;
                    }
                    if index[to as usize] == NEW {
                        enter = Some(to);
                    } else if on_stack[to as usize] {
                        low[v] = low[v].min(index[to as usize]);
                    }
                    continue;
                }
                calls.pop();
                if let Some(&(parent, _)) = calls.last() {
                    low[parent as usize] = low[parent as usize].min(low[v]);
                }
                if low[v] == index[v] {
                    let start = stack.iter().rposition(|&w| w as usize == v).unwrap_or(0);
                    let component = stack.split_off(start);
                    component.iter().for_each(|&w| on_stack[w as usize] = false);
                    if component.len() > 1 {
                        found.push(component);
                    }
                }
            }
        }
        found
    }

    /// A shortest path over edges of `colours` between nodes that `inside` admits.
    pub fn path(&self, from: u32, to: u32, colours: u8, inside: &dyn Fn(u32) -> bool) -> Option<Vec<Hop>> {
        let mut came: HashMap<u32, Hop> = HashMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            for (next, edge) in self.from(node, colours) {
                if !inside(next) || next == from || came.contains_key(&next) {
                    continue;
                }
                came.insert(next, (node, edge));
                if next == to {
                    let mut hops = Vec::new();
                    let mut at = to;
                    while at != from {
                        let hop = came[&at];
                        hops.push(hop);
                        at = hop.0;
                    }
                    hops.reverse();
                    return Some(hops);
                }
                queue.push_back(next);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_found_without_the_colours_left_out() {
        let mut graph = Graph::new(6);
        let read = Edge::ReadBy { key: 0, value: 0 };
        for (from, to) in [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)] {
            graph.add(from, to, read);
        }
        graph.add(4, 3, Edge::Time);
        let sorted = |colours| {
            let mut found = graph.components(colours);
            found.iter_mut().for_each(|c| c.sort_unstable());
            found.sort();
            found
        };
        assert_eq!(sorted(Edge::READ_BY), [vec![0, 1, 2]]);
        assert_eq!(sorted(Edge::READ_BY | Edge::TIME), [vec![0, 1, 2], vec![3, 4]]);
        assert!(sorted(Edge::TIME).is_empty());
    }

    #[test]
    fn a_path_is_a_shortest_one_and_stays_inside() {
        let mut graph = Graph::new(4);
        for (from, to) in [(0, 1), (1, 3), (0, 2), (2, 3), (0, 3)] {
            graph.add(
                from,
                to,
                if (from, to) == (0, 3) { Edge::Time } else { Edge::ReadBy { key: 0, value: 0 } },
            );
        }
        let nodes = |hops: Option<Vec<Hop>>| hops.map(|h| h.iter().map(|hop| hop.0).collect::<Vec<_>>());
        assert_eq!(nodes(graph.path(0, 3, Edge::READ_BY | Edge::TIME, &|_| true)), Some(vec![0]));
        assert_eq!(nodes(graph.path(0, 3, Edge::READ_BY, &|node| node != 1)), Some(vec![0, 2]));
        assert_eq!(nodes(graph.path(3, 0, Edge::READ_BY, &|_| true)), None);
    }
}
