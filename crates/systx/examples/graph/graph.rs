//! An undirected graph in a file, read and written in place: a matrix of bits if it is dense, chained slots of neighbours
//! if it is sparse.
//!
//! The code knows neither threads nor transactions: a plain file and one of a transaction are both [`FileExt`].

use std::io;
use std::os::unix::fs::FileExt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Dense,
    Sparse,
}

/// What never changes, at the beginning of the file: kind and number of vertices.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub kind: Kind,
    pub vertices: u32,
}

/// Sparse: the number of slots. On a page of its own, since most requests have no need of it.
const SLOTS_AT: u64 = 4096;
const BODY_AT: u64 = 8192;

/// Neighbours of a vertex: their number, the number of the next slot or 0, and up to 14 of them. The first slot of a
/// vertex has its number.
struct Slot([u8; 64]);

impl Slot {
    const ROOM: u32 = 14;

    fn word(&self, n: u32) -> u32 {
        let at = 4 * n as usize;
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn set(&mut self, n: u32, value: u32) {
        let at = 4 * n as usize;
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn neighbours(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.word(0).min(Slot::ROOM)).map(|n| self.word(2 + n))
    }
}

/// The graph in an open file.
pub struct Graph<'f, F> {
    pub file: &'f F,
    pub shape: Shape,
}

impl<F: FileExt> Graph<'_, F> {
    /// The shape of the graph in a file.
    pub fn shape_of(file: &F) -> io::Result<Shape> {
        let mut head = Slot([0; 64]);
        file.read_exact_at(&mut head.0[..8], 0)?;
        let kind = if head.word(0) == 0 { Kind::Dense } else { Kind::Sparse };
        Ok(Shape { kind, vertices: head.word(1) })
    }

    /// Makes a file that is empty a graph without edges.
    pub fn make(&self) -> io::Result<()> {
        let mut head = Slot([0; 64]);
        head.set(0, u32::from(self.shape.kind == Kind::Sparse));
        head.set(1, self.shape.vertices);
        self.file.write_all_at(&head.0, 0)?;
        self.file.write_all_at(&self.shape.vertices.to_le_bytes(), SLOTS_AT)?;
        let row = if self.shape.kind == Kind::Dense { self.row_bytes() } else { 64 };
        self.file.write_all_at(&vec![0; row * self.shape.vertices as usize], BODY_AT)
    }

    fn row_bytes(&self) -> usize {
        self.shape.vertices.div_ceil(64) as usize * 8
    }

    /// The byte with the bit of a pair, and the bit.
    fn bit_of(&self, u: u32, v: u32) -> (u64, u8) {
        (BODY_AT + u64::from(u) * self.row_bytes() as u64 + u64::from(v / 8), 1 << (v % 8))
    }

    fn byte(&self, at: u64) -> io::Result<u8> {
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, at)?;
        Ok(byte[0])
    }

    fn slot(&self, number: u32) -> io::Result<Slot> {
        let mut slot = Slot([0; 64]);
        self.file.read_exact_at(&mut slot.0, BODY_AT + u64::from(number) * 64)?;
        Ok(slot)
    }

    fn put_slot(&self, number: u32, slot: &Slot) -> io::Result<()> {
        self.file.write_all_at(&slot.0, BODY_AT + u64::from(number) * 64)
    }

    /// Puts the neighbours of a vertex into `into`.
    fn neighbours(&self, u: u32, into: &mut Vec<u32>) -> io::Result<()> {
        into.clear();
        if self.shape.kind == Kind::Dense {
            let mut row = vec![0; self.row_bytes()];
            self.file.read_exact_at(&mut row, self.bit_of(u, 0).0)?;
            for (n, byte) in row.iter().enumerate().filter(|(_, byte)| **byte != 0) {
                into.extend((0..8).filter(|bit| byte >> bit & 1 != 0).map(|bit| n as u32 * 8 + bit));
            }
            return Ok(());
        }
        let mut number = u;
        loop {
            let slot = self.slot(number)?;
            into.extend(slot.neighbours());
            number = slot.word(1);
            if number == 0 {
                return Ok(());
            }
        }
    }

    /// Returns true if there is an edge between the two.
    pub fn has_edge(&self, u: u32, v: u32) -> io::Result<bool> {
        if self.shape.kind == Kind::Dense {
            let (at, bit) = self.bit_of(u, v);
            return Ok(self.byte(at)? & bit != 0);
        }
        let mut near = Vec::new();
        self.neighbours(u, &mut near)?;
        Ok(near.contains(&v))
    }

    /// Adds an edge that is missing, or removes one that is there; returns false if there was nothing to do.
    pub fn set_edge(&self, u: u32, v: u32, there: bool) -> io::Result<bool> {
        if u == v || self.has_edge(u, v)? == there {
            return Ok(false);
        }
        for (u, v) in [(u, v), (v, u)] {
            match (self.shape.kind, there) {
                (Kind::Dense, _) => {
                    let (at, bit) = self.bit_of(u, v);
                    self.file.write_all_at(&[self.byte(at)? ^ bit], at)?;
                }
                (Kind::Sparse, true) => self.link(u, v)?,
                (Kind::Sparse, false) => self.unlink(u, v)?,
            }
        }
        Ok(true)
    }

    fn link(&self, u: u32, v: u32) -> io::Result<()> {
        let mut number = u;
        loop {
            let mut slot = self.slot(number)?;
            let used = slot.word(0);
            if used < Slot::ROOM {
                slot.set(2 + used, v);
                slot.set(0, used + 1);
                return self.put_slot(number, &slot);
            }
            if slot.word(1) == 0 {
                // Two requests that need a new slot conflict on the number of slots.
                let mut slots = [0; 4];
                self.file.read_exact_at(&mut slots, SLOTS_AT)?;
                let fresh = u32::from_le_bytes(slots);
                self.file.write_all_at(&(fresh + 1).to_le_bytes(), SLOTS_AT)?;
                self.put_slot(fresh, &Slot([0; 64]))?;
                slot.set(1, fresh);
                self.put_slot(number, &slot)?;
            }
            number = slot.word(1);
        }
    }

    fn unlink(&self, u: u32, v: u32) -> io::Result<()> {
        let mut number = u;
        loop {
            let mut slot = self.slot(number)?;
            let found = slot.neighbours().position(|near| near == v);
            if let Some(place) = found {
                let last = slot.word(0) - 1;
                slot.set(2 + place as u32, slot.word(2 + last));
                slot.set(0, last);
                return self.put_slot(number, &slot);
            }
            number = slot.word(1);
            if number == 0 {
                return Ok(());
            }
        }
    }

    /// Edges on a shortest path, found breadth first; `None`: there is no path.
    pub fn distance(&self, from: u32, to: u32) -> io::Result<Option<u32>> {
        let mut seen = vec![false; self.shape.vertices as usize];
        let (mut front, mut next, mut near) = (vec![from], Vec::new(), Vec::new());
        seen[from as usize] = true;
        let mut far = 0;
        while !front.is_empty() {
            if front.contains(&to) {
                return Ok(Some(far));
            }
            far += 1;
            for u in front.drain(..) {
                self.neighbours(u, &mut near)?;
                if near.contains(&to) {
                    return Ok(Some(far));
                }
                next.extend(near.iter().filter(|v| !std::mem::replace(&mut seen[**v as usize], true)));
            }
            std::mem::swap(&mut front, &mut next);
        }
        Ok(None)
    }

    /// Calls `each` with each edge, once.
    pub fn edges(&self, mut each: impl FnMut(u32, u32)) -> io::Result<()> {
        let mut near = Vec::new();
        for u in 0..self.shape.vertices {
            self.neighbours(u, &mut near)?;
            near.sort_unstable();
            near.iter().filter(|v| u < **v).for_each(|v| each(u, *v));
        }
        Ok(())
    }
}

/// What a client wants.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    Add(u32, u32),
    Remove(u32, u32),
    Edge(u32, u32),
    Path(u32, u32),
}

impl Request {
    /// Understands a line, such as `add 3 4`.
    pub fn of_line(line: &str, shape: Shape) -> Option<Request> {
        let mut words = line.split_ascii_whitespace();
        let verb = words.next()?;
        let mut vertex = || words.next()?.parse().ok().filter(|vertex| *vertex < shape.vertices);
        let (u, v) = (vertex()?, vertex()?);
        match verb {
            "add" => Some(Request::Add(u, v)),
            "remove" => Some(Request::Remove(u, v)),
            "edge" => Some(Request::Edge(u, v)),
            "path" => Some(Request::Path(u, v)),
            _ => None,
        }
    }

    /// Does it; returns the answer.
    pub fn execute(self, graph: &Graph<'_, impl FileExt>) -> io::Result<String> {
        let yes = |yes| if yes { "yes".into() } else { "no".into() };
        match self {
            Request::Add(u, v) => graph.set_edge(u, v, true).map(yes),
            Request::Remove(u, v) => graph.set_edge(u, v, false).map(yes),
            Request::Edge(u, v) => graph.has_edge(u, v).map(yes),
            Request::Path(u, v) => {
                graph.distance(u, v).map(|far| far.map_or("none".into(), |far| far.to_string()))
            }
        }
    }
}
